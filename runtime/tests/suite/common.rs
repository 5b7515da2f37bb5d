//! A small random model in memory, and where the shared files are.

use std::path::{Path, PathBuf};

use gguf::{Array, GgufFile, Layout, Metadata, Shape, TensorSpec, Value, Writer, source};
use gguf_blocks::{Importance, registry};

/// Sizes of the model. Rows are whole blocks of every type with blocks of 32.
pub(crate) const N_EMBD: usize = 64;
pub(crate) const N_LAYER: usize = 2;
pub(crate) const N_HEAD: usize = 4;
pub(crate) const N_HEAD_KV: usize = 2;
pub(crate) const HEAD_DIM: usize = 16;
pub(crate) const N_EXPERT: usize = 5;
pub(crate) const N_USED: usize = 2;
pub(crate) const N_FF: usize = 32;
pub(crate) const EPS: f32 = 1e-5;
pub(crate) const ROPE_BASE: f32 = 5000.0;

/// Tensors with their shapes (row length first) and values.
pub(crate) type Tensors = Vec<(String, Vec<u64>, Vec<f32>)>;

/// A model before it is written.
#[derive(Clone)]
pub(crate) struct Tiny {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Tensors,
    /// Type of the matrices.
    pub(crate) matrix_type: &'static str,
}

/// Uniform in -1 .. 1.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn values(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.next() * scale).collect()
    }
}

/// Letters of the byte alphabet in order of the bytes.
pub(crate) fn letters() -> Vec<String> {
    let mut next = 0x100u32;
    let letter = |b: u32| {
        if matches!(b, 33..=126 | 161..=172 | 174..=255) {
            b
        } else {
            next += 1;
            next - 1
        }
    };
    (0..256)
        .map(letter)
        .map(|c| char::from_u32(c).unwrap().to_string())
        .collect()
}

impl Tiny {
    pub(crate) fn new() -> Self {
        let mut tokens = letters();
        let merges = ["Ġ t", "h e", "Ġt he", "i n"];
        tokens.extend(merges.iter().map(|m| m.replace(' ', "")));
        let specials = ["<|bos|>", "<|eos|>", "<tool>"];
        tokens.extend(specials.map(str::to_owned));
        let n_vocab = tokens.len();
        let mut kinds = vec![1i32; n_vocab];
        kinds[n_vocab - 3..].copy_from_slice(&[3, 3, 4]);

        let mut m = Metadata::new();
        m.set("general.architecture", Value::String("qwen3moe".into()));
        let mut uint = |key: &str, v: usize| m.set(format!("qwen3moe.{key}"), Value::U32(v as u32));
        uint("block_count", N_LAYER);
        uint("context_length", 128);
        uint("embedding_length", N_EMBD);
        uint("feed_forward_length", N_FF);
        uint("attention.head_count", N_HEAD);
        uint("attention.head_count_kv", N_HEAD_KV);
        uint("attention.key_length", HEAD_DIM);
        uint("attention.value_length", HEAD_DIM);
        uint("expert_count", N_EXPERT);
        uint("expert_used_count", N_USED);
        uint("expert_feed_forward_length", N_FF);
        m.set("qwen3moe.rope.freq_base", Value::F32(ROPE_BASE));
        m.set("qwen3moe.attention.layer_norm_rms_epsilon", Value::F32(EPS));
        m.set("tokenizer.ggml.model", Value::String("gpt2".into()));
        m.set("tokenizer.ggml.pre", Value::String("qwen2".into()));
        m.set("tokenizer.ggml.tokens", Value::from(tokens));
        m.set("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
        let merges = merges.map(str::to_owned).to_vec();
        m.set("tokenizer.ggml.merges", Value::from(merges));
        m.set("tokenizer.ggml.bos_token_id", Value::U32(n_vocab as u32 - 3));
        m.set("tokenizer.ggml.eos_token_id", Value::U32(n_vocab as u32 - 2));
        Self {
            metadata: m,
            tensors: tensors(n_vocab),
            matrix_type: "F32",
        }
    }

    pub(crate) fn n_vocab(&self) -> usize {
        self.tensor("token_embd.weight").1[1] as usize
    }

    pub(crate) fn tensor(&self, name: &str) -> &(String, Vec<u64>, Vec<f32>) {
        self.tensors
            .iter()
            .find(|t| t.0 == name)
            .unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub(crate) fn tensor_mut(&mut self, name: &str) -> &mut (String, Vec<u64>, Vec<f32>) {
        self.tensors.iter_mut().find(|t| t.0 == name).unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let type_of = |shape: &[u64], name: &str| {
            let plain = shape.len() == 1 || name.contains("ffn_gate_inp");
            registry::by_name(if plain { "F32" } else { self.matrix_type }).unwrap()
        };
        let spec = |(name, shape, _): &(String, Vec<u64>, Vec<f32>)| {
            TensorSpec::new(name.clone(), Shape::new(shape).unwrap(), type_of(shape, name).id)
        };
        let layout = Layout::plan(&self.metadata, self.tensors.iter().map(spec).collect()).unwrap();
        let mut writer = Writer::new(Vec::new(), &layout).unwrap();
        for (name, shape, values) in &self.tensors {
            let format = type_of(shape, name);
            let n_cols = shape[0] as usize;
            let mut row = vec![0; format.geometry.row_bytes(shape[0]).unwrap() as usize];
            for src in values.chunks(n_cols) {
                format.encoder(gguf_blocks::Cpu::best()).unwrap()(src, Importance::None, &mut row);
                writer.write(&row).unwrap();
            }
        }
        writer.finish().unwrap()
    }

    pub(crate) fn file(&self) -> GgufFile {
        GgufFile::from_source(source::bytes(PathBuf::from("tiny.gguf"), self.bytes())).unwrap()
    }

    pub(crate) fn write(&self, path: &Path) {
        write(path, &self.bytes());
    }
}

fn tensors(n_vocab: usize) -> Tensors {
    let mut r = Random(7);
    let mut out = Tensors::new();
    let mut add = |name: String, shape: &[usize], scale: f32| {
        let n = shape.iter().product();
        let mut values = r.values(n, scale);
        if shape.len() == 1 {
            for v in &mut values {
                *v += 1.0;
            }
        }
        out.push((name, shape.iter().map(|&d| d as u64).collect(), values));
    };
    add("token_embd.weight".into(), &[N_EMBD, n_vocab], 1.0);
    add("output_norm.weight".into(), &[N_EMBD], 0.3);
    add("output.weight".into(), &[N_EMBD, n_vocab], 0.4);
    for i in 0..N_LAYER {
        let mut layer =
            |name: &str, shape: &[usize], scale| add(format!("blk.{i}.{name}.weight"), shape, scale);
        layer("attn_norm", &[N_EMBD], 0.3);
        layer("attn_q", &[N_EMBD, N_HEAD * HEAD_DIM], 0.2);
        layer("attn_k", &[N_EMBD, N_HEAD_KV * HEAD_DIM], 0.2);
        layer("attn_v", &[N_EMBD, N_HEAD_KV * HEAD_DIM], 0.2);
        layer("attn_output", &[N_HEAD * HEAD_DIM, N_EMBD], 0.2);
        layer("attn_q_norm", &[HEAD_DIM], 0.3);
        layer("attn_k_norm", &[HEAD_DIM], 0.3);
        layer("ffn_norm", &[N_EMBD], 0.3);
        layer("ffn_gate_inp", &[N_EMBD, N_EXPERT], 0.3);
        layer("ffn_gate_exps", &[N_EMBD, N_FF, N_EXPERT], 0.2);
        layer("ffn_up_exps", &[N_EMBD, N_FF, N_EXPERT], 0.2);
        layer("ffn_down_exps", &[N_FF, N_EMBD, N_EXPERT], 0.2);
    }
    out
}

#[expect(
    clippy::disallowed_methods,
    reason = "an input of the tests, not an output of the suite"
)]
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

/// A file of the shared folder beside the project, or a notice that the test has nothing to do.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let found = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")).join(path);
    if !found.exists() {
        crate::skip::skip(&format!("{} is not there", found.display()));
        return None;
    }
    Some(found)
}

/// A file of the project's test data.
pub(crate) fn data(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data")).join(path)
}

pub(crate) fn relative_l2(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |v: f64| v * v;
    let diff: f64 = found
        .iter()
        .zip(expected)
        .map(|(a, b)| square(f64::from(a - b)))
        .sum();
    let norm: f64 = expected.iter().map(|&b| square(f64::from(b))).sum();
    (diff / norm).sqrt()
}

/// A model's file with every tensor in F32.
pub(crate) fn in_f32(path: &Path) -> GgufFile {
    let bytes = in_type(path, "F32");
    GgufFile::from_source(source::bytes(path.to_owned(), bytes)).unwrap()
}

/// The bytes of a model's file with every matrix, but for those already in F32, in another type.
pub(crate) fn in_type(path: &Path, name: &str) -> Vec<u8> {
    let from = GgufFile::open(path).unwrap();
    let f32 = registry::by_name("F32").unwrap();
    let format = |t: &gguf::TensorInfo| {
        let stays = t.shape.n_rows() == 1 || t.format().unwrap().name == "F32";
        if stays {
            f32
        } else {
            registry::by_name(name).unwrap()
        }
    };
    let specs = from.tensors.iter().map(|t| TensorSpec {
        type_id: format(t).id,
        ..TensorSpec::from(t)
    });
    let layout = Layout::plan(&from.metadata, specs.collect()).unwrap();
    let mut writer = Writer::new(Vec::new(), &layout).unwrap();
    for t in &from.tensors {
        let mut values = vec![0.0; t.shape.n_elems() as usize];
        t.format().unwrap().decode.unwrap()(&from.tensor_bytes(t).unwrap(), &mut values);
        let n_cols = t.shape.n_cols();
        let mut row = vec![0; format(t).geometry.row_bytes(n_cols).unwrap() as usize];
        for src in values.chunks(n_cols as usize) {
            format(t).encoder(gguf_blocks::Cpu::best()).unwrap()(src, Importance::None, &mut row);
            writer.write(&row).unwrap();
        }
    }
    writer.finish().unwrap()
}
