//! A tiny checkpoint that tests can bend.

#![expect(clippy::disallowed_methods, reason = "inputs of tests need no atomic writes")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

pub(crate) const N_EMBD: usize = 32;
pub(crate) const N_FF: usize = 48;
pub(crate) const N_EXPERT: usize = 3;
pub(crate) const N_ROWS: usize = 12;

/// A tensor to be stored: shape with the row length last.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<u8>,
}

impl Tensor {
    /// Random-looking values that F16 and BF16 hold exactly.
    fn new(name: &str, dtype: &'static str, shape: &[usize]) -> Self {
        let mut state = name.bytes().fold(0x1234_5678_u32, |s, b| {
            s.wrapping_mul(31).wrapping_add(u32::from(b))
        });
        let n = shape.iter().product();
        let values = (0..n).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (f32::from((state >> 25) as u8) - 64.0) / 64.0
        });
        let data = values.flat_map(|v| encode(dtype, v)).collect();
        Self {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            data,
        }
    }

    /// Replaces one value.
    pub(crate) fn set(&mut self, i: usize, value: f32) {
        let bytes = encode(self.dtype, value);
        self.data[i * bytes.len()..][..bytes.len()].copy_from_slice(&bytes);
    }
}

fn encode(dtype: &str, value: f32) -> Vec<u8> {
    match dtype {
        "BF16" => value.to_bits().to_le_bytes()[2..].to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

/// A whole checkpoint.
#[derive(Clone)]
pub(crate) struct Checkpoint {
    pub(crate) config: Json,
    pub(crate) tokenizer: Json,
    pub(crate) tokenizer_config: Json,
    pub(crate) tensors: Vec<Tensor>,
}

impl Checkpoint {
    /// One layer of three experts; all tensors in `dtype`.
    pub(crate) fn tiny(dtype: &'static str) -> Self {
        let mut tensors = Vec::new();
        let mut add = |name: &str, shape: &[usize]| tensors.push(Tensor::new(name, dtype, shape));
        add("lm_head.weight", &[N_ROWS, N_EMBD]);
        add("model.embed_tokens.weight", &[N_ROWS, N_EMBD]);
        add("model.norm.weight", &[N_EMBD]);
        let layer = |name: &str| format!("model.layers.0.{name}");
        for expert in 0..N_EXPERT {
            for (name, shape) in [
                ("down", [N_EMBD, N_FF]),
                ("gate", [N_FF, N_EMBD]),
                ("up", [N_FF, N_EMBD]),
            ] {
                add(
                    &layer(&format!("mlp.experts.{expert}.{name}_proj.weight")),
                    &shape,
                );
            }
        }
        add(&layer("mlp.gate.weight"), &[N_EXPERT, N_EMBD]);
        add(&layer("input_layernorm.weight"), &[N_EMBD]);
        add(&layer("post_attention_layernorm.weight"), &[N_EMBD]);
        add(&layer("self_attn.q_norm.weight"), &[16]);
        add(&layer("self_attn.k_norm.weight"), &[16]);
        add(&layer("self_attn.q_proj.weight"), &[32, N_EMBD]);
        add(&layer("self_attn.k_proj.weight"), &[16, N_EMBD]);
        add(&layer("self_attn.v_proj.weight"), &[16, N_EMBD]);
        add(&layer("self_attn.o_proj.weight"), &[N_EMBD, 32]);
        // Tensors are taken by file and name, so that only shards of sorted names keep the order.
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            config: config(),
            tokenizer: tokenizer(),
            tokenizer_config: json!({"eos_token": "<|e|>"}),
            tensors,
        }
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors
            .iter_mut()
            .find(|t| t.name == name)
            .expect("a tensor of this name")
    }

    /// Replaces the experts' tensors by the fused ones of the same values.
    pub(crate) fn fuse(&mut self) {
        let of = |all: &[Tensor], expert: usize, name: &str| {
            let name = format!("model.layers.0.mlp.experts.{expert}.{name}_proj.weight");
            all.iter()
                .find(|t| t.name == name)
                .expect("an expert")
                .data
                .clone()
        };
        let (mut down, mut gate_up) = (Vec::new(), Vec::new());
        for expert in 0..N_EXPERT {
            down.extend(of(&self.tensors, expert, "down"));
            gate_up.extend(of(&self.tensors, expert, "gate"));
            gate_up.extend(of(&self.tensors, expert, "up"));
        }
        let dtype = self.tensors[0].dtype;
        let fused = |name: &str, shape: [usize; 3], data| Tensor {
            name: format!("model.layers.0.mlp.experts.{name}"),
            dtype,
            shape: shape.to_vec(),
            data,
        };
        self.tensors.retain(|t| !t.name.contains(".experts."));
        self.tensors
            .insert(3, fused("down_proj", [N_EXPERT, N_EMBD, N_FF], down));
        self.tensors
            .insert(4, fused("gate_up_proj", [N_EXPERT, 2 * N_FF, N_EMBD], gate_up));
    }

    /// Writes the folder with one `model.safetensors`.
    pub(crate) fn write(&self, dir: &Path) -> PathBuf {
        self.write_settings(dir);
        write(&dir.join("model.safetensors"), &safetensors(&self.tensors));
        dir.to_owned()
    }

    /// Writes the folder with two shards and an index, the first shard with `n_first` tensors.
    pub(crate) fn write_sharded(&self, dir: &Path, n_first: usize) -> PathBuf {
        self.write_settings(dir);
        let mut map = serde_json::Map::new();
        let (first, second) = self.tensors.split_at(n_first);
        for (shard, tensors) in [("model-00001-of-00002", first), ("model-00002-of-00002", second)] {
            let file = format!("{shard}.safetensors");
            map.extend(tensors.iter().map(|t| (t.name.clone(), Json::from(file.clone()))));
            write(&dir.join(&file), &safetensors(tensors));
        }
        write_json(
            &dir.join("model.safetensors.index.json"),
            &json!({"metadata": {}, "weight_map": map}),
        );
        dir.to_owned()
    }

    fn write_settings(&self, dir: &Path) {
        fs::create_dir_all(dir).expect("a folder");
        write_json(&dir.join("config.json"), &self.config);
        write_json(&dir.join("tokenizer.json"), &self.tokenizer);
        write_json(&dir.join("tokenizer_config.json"), &self.tokenizer_config);
    }
}

/// The bytes of a safetensors file.
pub(crate) fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for t in tensors {
        let end = at + t.data.len();
        header.insert(
            t.name.clone(),
            json!({"dtype": t.dtype, "shape": t.shape, "data_offsets": [at, end]}),
        );
        at = end;
    }
    let data: Vec<u8> = tensors.iter().flat_map(|t| t.data.clone()).collect();
    with_header(&Json::Object(header).to_string(), &data)
}

/// A safetensors file with any header.
pub(crate) fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), data].concat()
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("a file");
}

pub(crate) fn write_json(path: &Path, json: &Json) {
    write(path, json.to_string().as_bytes());
}

fn config() -> Json {
    json!({
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": N_EMBD,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "intermediate_size": 64,
        "moe_intermediate_size": N_FF,
        "num_experts": N_EXPERT,
        "num_experts_per_tok": 2,
        "norm_topk_prob": true,
        "vocab_size": N_ROWS,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000,
        "tie_word_embeddings": false,
        "hidden_act": "silu",
    })
}

fn tokenizer() -> Json {
    let regex = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [{
            "id": 9, "content": "<|e|>", "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        }],
        "normalizer": null,
        "post_processor": null,
        "decoder": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
        ]},
        "model": {
            "type": "BPE",
            "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4},
            "merges": [["a", "b"], ["ab", "c"]],
        },
    })
}
