//! Checkpoints of which one file is malformed, for the two programs that read them.

use serde_json::{Map, Value, json};
use suite_tests::data;
use suite_tests::fuzz::checkpoint::{CONFIG, header, usual_but};

use super::ran;

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const Q: &str = "model.layers.0.self_attn.q_proj.weight";
/// JSON that is nested as deep as no parser on a stack follows.
const DEEP: usize = 200_000;

/// A file to be malformed, its bytes, and what every refusal says.
type Case = (&'static str, Vec<u8>, &'static [&'static str]);

fn of_text(name: &'static str, text: &str, words: &'static [&'static str]) -> Case {
    (name, text.as_bytes().to_vec(), words)
}

fn tensors() -> Map<String, Value> {
    serde_json::from_str(&header()).expect("JSON")
}

/// Bytes of all data.
fn n_data() -> usize {
    let ends = tensors()
        .into_iter()
        .map(|(_, tensor)| tensor["data_offsets"][1].as_u64());
    ends.max().flatten().expect("tensors") as usize
}

/// A file of weights that says `length` of its header.
fn weights(length: u64, header: &str, n_data: usize) -> Vec<u8> {
    [&length.to_le_bytes()[..], header.as_bytes(), &vec![0; n_data]].concat()
}

/// One with a header of its own.
fn with(header: &str, words: &'static [&'static str]) -> Case {
    (WEIGHTS, weights(header.len() as u64, header, n_data()), words)
}

/// One in which one matrix is said to be something else.
fn tensor(key: &str, value: Value, words: &'static [&'static str]) -> Case {
    let mut all = tensors();
    all[Q][key] = value;
    with(&Value::Object(all).to_string(), words)
}

fn files_of_weights() -> Vec<Case> {
    let (sound, n) = (header(), n_data());
    let length = sound.len() as u64;
    let twice = sound.replacen('{', &format!("{{\"{Q}\":{},", tensors()[Q]), 1);
    vec![
        (
            WEIGHTS,
            weights(1 << 60, &sound, n),
            &["header length", "1152921504606846976"],
        ),
        (WEIGHTS, weights(length, &sound[..300], 0), &["header length"]),
        (WEIGHTS, Vec::new(), &["found 0 bytes"]),
        (WEIGHTS, vec![1; 7], &["found 7 bytes"]),
        (WEIGHTS, weights(length, &sound, n - 1), &["it is cut"]),
        (
            WEIGHTS,
            weights(length, &sound, n + 5),
            &["more than the header describes"],
        ),
        with("{\"a\":", &["JSON"]),
        with(&"[".repeat(DEEP), &["JSON"]),
        with(&"{\"a\":".repeat(DEEP), &["JSON"]),
        (WEIGHTS, weights(2, "{}", 0), &["model.embed_tokens.weight"]),
        with(&twice, &[Q]),
        tensor("shape", json!([1_u64 << 40, 1_u64 << 40]), &[Q, "shape"]),
        tensor("shape", json!([-1, 4]), &["JSON", "-1"]),
        tensor("shape", json!(vec![1; 10_000]), &[Q]),
        tensor("data_offsets", json!([0, 1_u64 << 50]), &[Q]),
        tensor("data_offsets", json!([64, 0]), &[Q, "64 to 0"]),
        tensor("data_offsets", json!([0, 2048]), &["behind the tensor before"]),
        tensor("dtype", json!("F13"), &[Q, "F13"]),
    ]
}

/// An index in which all tensors, and one more, are in one file.
fn index(file: &str, more: Option<&str>, words: &'static [&'static str]) -> Case {
    let tensors = tensors();
    let names = tensors.keys().map(String::as_str).chain(more);
    let map: Map<String, Value> = names.map(|name| (name.to_owned(), file.into())).collect();
    (INDEX, json!({"weight_map": map}).to_string().into_bytes(), words)
}

fn indices() -> Vec<Case> {
    let text = |text: &str, words| of_text(INDEX, text, words);
    vec![
        text("{\"weight_map\":", &[INDEX]),
        text("{}", &[INDEX, "weight_map"]),
        text(&"[".repeat(DEEP), &[INDEX]),
        text(&"{\"weight_map\":".repeat(DEEP), &[INDEX]),
        index("../m/model.safetensors", None, &[INDEX, "without folders"]),
        index("/etc/passwd", None, &[INDEX, "without folders"]),
        index("..", None, &[INDEX]),
        index(WEIGHTS, Some("gone.weight"), &["gone.weight"]),
    ]
}

fn settings() -> Vec<Case> {
    let config = |from: &str, to: &str, words| {
        let changed = CONFIG.replace(from, to);
        assert_ne!(changed, CONFIG);
        of_text("config.json", &changed, words)
    };
    vec![
        of_text("config.json", "{\"a\"", &["config.json"]),
        of_text("config.json", "[]", &["config.json"]),
        of_text("config.json", &"{\"a\":".repeat(DEEP), &["config.json"]),
        config("layers\":1", "layers\":4000000000", &["num_hidden_layers"]),
        config(
            "hidden_size\":32",
            "hidden_size\":18446744073709551615",
            &["hidden_size"],
        ),
        config(
            "attention_heads\":2",
            "attention_heads\":0",
            &["num_attention_heads"],
        ),
        config("Llama", "../Llama", &["unknown architecture"]),
        of_text("tokenizer.json", "{", &["tokenizer.json"]),
        of_text("tokenizer.json", &"{\"model\":".repeat(DEEP), &["tokenizer.json"]),
    ]
}

#[test]
fn programs_refuse_every_malformed_checkpoint() {
    let text = data("evaluation.txt");
    let text = text.to_str().expect("UTF-8");
    for (name, bytes, words) in [files_of_weights(), indices(), settings()].concat() {
        let folder = usual_but(&[(name, &bytes)]);
        let outputs = tempfile::tempdir().expect("a folder");
        let out = outputs.path().join("out.gguf");
        let (m, o) = (
            folder.path().to_str().expect("UTF-8"),
            out.to_str().expect("UTF-8"),
        );
        for (program, args) in [
            ("gguf-convert", &[m, "-o", o][..]),
            ("gguf-imatrix", &["-m", m, "-f", text, "-o", o]),
        ] {
            let place = format!("{program}, {name} of {} bytes, {words:?}", bytes.len());
            ran(program, args).must_refuse(&place, words);
            let left = std::fs::read_dir(outputs.path()).expect("a folder").count();
            assert_eq!(left, 0, "{place} left an output");
        }
        assert!(
            std::fs::read(folder.path().join(name)).is_ok_and(|b| b == bytes),
            "{name} changed"
        );
    }
}
