//! Checkpoints in the form of `folder.rs`.

use serde_json::{Map, Value, json};

use super::super::folder::{NUMBERS, entry};
use super::super::{checkpoint, tokenizer};
use super::Seed;

/// A folder of texts.
fn folder(files: &[(&str, String)]) -> Vec<u8> {
    let files = files.iter().map(|(name, text)| entry(name, text.as_bytes()));
    files.collect::<Vec<_>>().concat()
}

/// The usual weights in one file, in two with and without an index, and with a matrix of each quantized form.
pub(super) fn weights() -> Vec<Seed> {
    const INDEX: &str = "model.safetensors.index.json";
    let header: Map<String, Value> = serde_json::from_str(&checkpoint::header()).expect("JSON");
    let whole = Value::Object(header.clone()).to_string();
    let n = header.len() / 2;
    let (first, second): (Vec<_>, Vec<_>) = header.into_iter().enumerate().partition(|(i, _)| *i < n);
    let shards = [first, second].map(|shard| moved(shard.into_iter().map(|(_, pair)| pair)));
    let names = [1, 2].map(|i| format!("model-0000{i}-of-00002.safetensors"));
    let map = shards.iter().zip(&names).flat_map(|(shard, name)| {
        shard
            .keys()
            .map(move |key| (key.clone(), Value::from(name.as_str())))
    });
    let index = json!({"metadata": {"total_size": 0}, "weight_map": map.collect::<Map<_, _>>()}).to_string();
    let headers = names.map(|n| format!("{n}.header"));
    let shards = shards.map(|shard| Value::Object(shard).to_string());
    let two = [
        (&*headers[0], shards[0].clone()),
        (&*headers[1], shards[1].clone()),
    ];
    let indexed = [&two[..], &[(INDEX, index)]].concat();
    let seed = |name: &str, files: &[(&str, String)]| ("safetensors", name.to_owned(), folder(files));
    let mut all = vec![
        seed("one", &[("model.safetensors.header", whole)]),
        seed("two", &two),
        seed("indexed", &indexed),
    ];
    for (name, settings, parts) in forms() {
        let files = [
            ("config.json", with_settings(settings)),
            (
                "model.safetensors.header",
                Value::Object(quantized(&parts)).to_string(),
            ),
        ];
        all.push(seed(name, &files));
        for (numbers, bytes) in numbers() {
            let input = [folder(&files), entry(NUMBERS, &bytes)].concat();
            all.push(("safetensors", format!("{name}-{numbers}"), input));
        }
    }
    all.extend(raw());
    all
}

/// Numbers of any kind, of odd lengths so that each meets every part: any bits; none, infinite and the largest ones as F32
/// and in both forms of 16 bits.
fn numbers() -> [(&'static str, Vec<u8>); 2] {
    let any = (0..61u8)
        .map(|i| i.wrapping_mul(151).rotate_left(3) ^ 0x5A)
        .collect();
    let floats = [
        f32::NAN,
        f32::INFINITY,
        f32::MIN,
        -0.0,
        1.0,
        f32::MIN_POSITIVE / 4.0,
    ]
    .map(f32::to_le_bytes);
    // Of F16: infinity, no number, the largest.
    let halves = [0x7C00u16, 0x7E01, 0xFBFF, 0x3C00].map(u16::to_le_bytes);
    let odd = [&floats.concat()[..], &halves.concat(), &[0x7F]].concat();
    [("any", any), ("odd", odd)]
}

/// Whole files of weights: a sound one, one whose header is said to be longer than the file, one that ends early, one that
/// ends in its header.
fn raw() -> Vec<Seed> {
    let header =
        json!({"model.norm.weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).to_string();
    let file = |length: u64, n_data: usize| {
        let bytes = [&length.to_le_bytes()[..], header.as_bytes(), &vec![7; n_data]].concat();
        entry("model.safetensors", &bytes)
    };
    let n = header.len() as u64;
    let cut = |bytes: Vec<u8>, n: usize| bytes[..bytes.len() - n].to_vec();
    [
        ("raw", file(n, 16)),
        ("raw-header-beyond", file(1 << 40, 16)),
        ("raw-header-short", file(n - 2, 16)),
        ("raw-data-short", file(n, 9)),
        ("raw-in-header", cut(file(n, 0), 20)),
    ]
    .map(|(name, bytes)| ("safetensors", name.to_owned(), bytes))
    .into()
}

/// Tensors one behind the other, as their entries or new ones tell their sizes.
fn moved(tensors: impl Iterator<Item = (String, Value)>) -> Map<String, Value> {
    let mut at = 0;
    let place = |(name, mut entry): (String, Value)| {
        let offset = |i: usize| entry["data_offsets"][i].as_u64().unwrap_or_default();
        let end = at + offset(1) - offset(0);
        entry["data_offsets"] = json!([at, end]);
        at = end;
        (name, entry)
    };
    tensors.map(place).collect()
}

/// A part of a quantized matrix: the end of its name, format, shape, bytes.
type FormPart = (&'static str, &'static str, Vec<u64>, u64);

/// Methods with their settings and the parts of a matrix of 32 x 32.
fn forms() -> Vec<(&'static str, Value, Vec<FormPart>)> {
    let words = |suffix, rows, cols| (suffix, "I32", vec![rows, cols], rows * cols * 4);
    let bytes = |suffix, dtype, rows, cols| (suffix, dtype, vec![rows, cols], rows * cols);
    let halves = |suffix, rows, cols| (suffix, "F16", vec![rows, cols], rows * cols * 2);
    vec![
        (
            "fp8",
            json!({"quant_method": "fp8", "weight_block_size": [16, 16]}),
            vec![
                bytes("weight", "F8_E4M3", 32, 32),
                ("weight_scale_inv", "F32", vec![2, 2], 16),
            ],
        ),
        (
            "gptq",
            json!({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false, "sym": true}),
            vec![
                words("qweight", 4, 32),
                words("qzeros", 1, 4),
                halves("scales", 1, 32),
                ("g_idx", "I32", vec![32], 128),
            ],
        ),
        (
            "awq",
            json!({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": true}),
            vec![
                words("qweight", 32, 4),
                words("qzeros", 1, 4),
                halves("scales", 1, 32),
            ],
        ),
        (
            "packed",
            json!({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {
                "targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": true, "type": "int"}}}}),
            vec![words("weight_packed", 32, 4), halves("weight_scale", 32, 1)],
        ),
        (
            "nvfp4",
            json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}),
            vec![
                bytes("weight", "U8", 32, 16),
                bytes("weight_scale", "F8_E4M3", 32, 2),
                ("weight_scale_2", "F32", vec![], 4),
            ],
        ),
        (
            "bitnet",
            json!({"quant_method": "bitnet"}),
            vec![bytes("weight", "U8", 8, 32), ("weight_scale", "BF16", vec![1], 2)],
        ),
        (
            "mxfp4",
            json!({"quant_method": "mxfp4"}),
            vec![
                bytes("weight_blocks", "U8", 32, 16),
                bytes("weight_scales", "U8", 32, 1),
            ],
        ),
    ]
}

/// The usual settings with those of a method.
fn with_settings(settings: Value) -> String {
    let mut config: Value = serde_json::from_str(checkpoint::CONFIG).expect("JSON");
    config["quantization_config"] = settings;
    config.to_string()
}

/// The usual header with one matrix in parts.
fn quantized(parts: &[FormPart]) -> Map<String, Value> {
    const MATRIX: &str = "model.layers.0.mlp.gate_proj.weight";
    let header: Map<String, Value> = serde_json::from_str(&checkpoint::header()).expect("JSON");
    let stem = MATRIX.strip_suffix("weight").expect("a weight");
    let parts = parts.iter().map(|(suffix, dtype, shape, n)| {
        (
            format!("{stem}{suffix}"),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [0, n]}),
        )
    });
    moved(header.into_iter().filter(|(name, _)| name != MATRIX).chain(parts))
}

/// A tokenizer of every kind and form.
pub(super) fn tokenizers() -> Vec<Seed> {
    let added = |id: u64, content: &str| json!({"id": id, "content": content, "special": true, "normalized": false, "single_word": false, "lstrip": false, "rstrip": false});
    let spm = json!({
        "added_tokens": [added(0, "<unk>"), added(7, "<|x|>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<unk>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<unk>": {"id": "<unk>", "ids": [0], "tokens": ["<unk>"]}}},
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true,
            "vocab": {"<unk>": 0, "<0x0A>": 1, "a": 2, "b": 3, "\u{2581}": 4, "ab": 5, "\u{2581}ab": 6},
            "merges": [["a", "b"], ["\u{2581}", "ab"]]},
    });
    let t5 = json!({
        "added_tokens": [added(0, "<pad>")],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AQID"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "\u{2581}", "add_prefix_space": true}]},
        "model": {"type": "Unigram", "unk_id": 1, "vocab": [["<pad>", 0.0], ["<unk>", 0.0], ["\u{2581}a", -1.5]]},
    });
    let bert = json!({
        "added_tokens": [added(0, "[UNK]"), added(1, "[CLS]")],
        "normalizer": {"type": "BertNormalizer", "lowercase": true, "clean_text": true, "handle_chinese_chars": true, "strip_accents": null},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "[CLS]": 1, "a": 2, "##b": 3}},
    });
    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": {"content": "<eos>"}, "add_bos_token": true,
        "chat_template": [{"name": "default", "template": "{{ messages[0].content }}"}, {"name": "tool_use", "template": "x"}],
        "added_tokens_decoder": {"256": {"content": "<bos>", "special": true}}
    });
    let ranks = "IQ== 0\nIg== 1\nIw== 2\nISI= 3\n".to_owned();
    let letters: Map<String, Value> = tokenizer::letters()
        .into_iter()
        .zip((0..).map(Value::from))
        .collect();
    let qwen = json!({"tokenizer_class": "Qwen2Tokenizer"});
    let files: [(&str, &[(&str, String)]); 6] = [
        (
            "bytes",
            &[
                ("tokenizer.json", checkpoint::tokenizer_json()),
                ("tokenizer_config.json", config.to_string()),
            ],
        ),
        (
            "spm",
            &[
                ("tokenizer.json", spm.to_string()),
                ("chat_template.jinja", "{{ bos_token }}".to_owned()),
            ],
        ),
        ("unigram", &[("tokenizer.json", t5.to_string())]),
        (
            "word-piece",
            &[
                ("tokenizer.json", bert.to_string()),
                ("tokenizer_config.json", json!({"cls_token": "[CLS]"}).to_string()),
            ],
        ),
        (
            "ranks",
            &[
                ("tiktoken.model", ranks),
                (
                    "tokenizer_config.json",
                    json!({"tokenizer_class": "TikTokenTokenizer"}).to_string(),
                ),
            ],
        ),
        (
            "lists",
            &[
                ("vocab.json", Value::Object(letters).to_string()),
                ("merges.txt", "#version: 0.2\nh e\n".to_owned()),
                ("added_tokens.json", json!({"<x>": 257}).to_string()),
                ("tokenizer_config.json", qwen.to_string()),
            ],
        ),
    ];
    files
        .into_iter()
        .map(|(name, files)| ("vocabulary", name.to_owned(), folder(files)))
        .collect()
}
