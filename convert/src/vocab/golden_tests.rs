//! Every checkpoint at hand: its keys as the reference converter has them, and its ids as its own tokenizer.

use std::fmt::Write;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;

/// Arrays longer than this are given by length and digest.
const N_LITERAL: usize = 64;

fn shared(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared")
        .join(path);
    if path.exists() {
        return Some(path);
    }
    crate::skip::skip(&format!("{} is absent", path.display()));
    None
}

fn read(path: &Path) -> Json {
    crate::source::read_json(path).expect("JSON")
}

/// Long arrays by the digest of their JSON with a blank behind each comma.
fn array<T: serde::Serialize>(items: &[T]) -> Json {
    if items.len() <= N_LITERAL {
        return json!(items);
    }
    let texts: Vec<_> = items
        .iter()
        .map(|i| serde_json::to_string(i).expect("JSON"))
        .collect();
    let mut hex = String::new();
    for byte in Sha256::digest(format!("[{}]", texts.join(", "))) {
        write!(hex, "{byte:02x}").expect("strings take all");
    }
    json!({"len": items.len(), "sha256": hex})
}

/// A value as the goldens have it: type names, then the value.
fn record(value: &Value) -> Json {
    match value {
        Value::U32(v) => json!([["UINT32"], v]),
        Value::Bool(v) => json!([["BOOL"], v]),
        Value::String(v) => json!([["STRING"], v]),
        Value::Array(gguf::Array::String(v)) => json!([["ARRAY", "STRING"], array(&v.to_vec())]),
        Value::Array(gguf::Array::I32(v)) => json!([["ARRAY", "INT32"], array(v)]),
        Value::Array(gguf::Array::F32(v)) => json!([["ARRAY", "FLOAT32"], array(v)]),
        other => panic!("a value that no converter writes: {other:?}"),
    }
}

/// Names with the same words are the same to every reader.
fn same_pre(ours: &Json, theirs: &Json) -> bool {
    let words = |record: &Json| gguf_models::vocab::by_name(record[1].as_str()?).map(|pre| pre.patterns);
    ours == theirs || words(ours) == words(theirs)
}

fn check_keys(name: &str, metadata: &Metadata, golden: &Json) {
    let expected: Vec<_> = golden["metadata"]
        .as_object()
        .expect("pairs")
        .iter()
        .filter(|(key, _)| key.starts_with("tokenizer."))
        .collect();
    let keys: Vec<_> = metadata.iter().map(|(key, _)| key).collect();
    assert_eq!(
        keys,
        expected.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
        "{name}"
    );
    for ((key, value), (_, theirs)) in metadata.iter().zip(expected) {
        let ours = record(value);
        let same = &ours == theirs || key == "tokenizer.ggml.pre" && same_pre(&ours, theirs);
        assert!(same, "{name} {key}: {ours} {theirs}");
    }
}

#[test]
fn keys_and_ids_of_every_checkpoint() {
    let (Some(zoo), Some(sources), Some(golden)) = (
        shared("models/zoo"),
        shared("models/sources"),
        shared("golden/convert"),
    ) else {
        return;
    };
    let mut n = 0;
    for folder in [zoo, sources]
        .iter()
        .flat_map(|dir| dir.read_dir().expect("a folder"))
    {
        let dir = folder.expect("an entry").path();
        let name = dir.file_name().expect("a name").to_string_lossy().into_owned();
        let config = read(&dir.join("config.json"));
        let vocabulary = Vocabulary::read(&dir, None).expect(&name);
        let source = vocabulary.source();
        assert_eq!(vocabulary.n_tokens(), 512, "{name}");
        let mut metadata = Metadata::new();
        vocabulary.metadata(&config, 512, &mut metadata).expect(&name);
        let golden = golden.join(format!("{name}.json"));
        if golden.exists() {
            check_keys(&name, &metadata, &read(&golden));
        }
        let notes = verify(&source, &metadata).expect(&name);
        assert!(
            notes.iter().all(|n| !n.contains("not compared")),
            "{name}: {notes:?}"
        );
        n += 1;
    }
    assert!(n >= 37, "{n} checkpoints");
}

/// The checkpoint that ships ranks has the vocabulary of one that ships a tokenizer.json.
#[test]
fn ranks_give_the_vocabulary_of_their_tokenizer() {
    let (Some(ranks), Some(json)) = (shared("models/sources/kimi-k2.5"), shared("models/zoo/kimi-k2")) else {
        return;
    };
    let keys = |dir: &Path| {
        let mut metadata = Metadata::new();
        let vocabulary = Vocabulary::read(dir, None).expect("sound");
        vocabulary
            .metadata(&json!({}), 512, &mut metadata)
            .expect("sound");
        metadata
    };
    let (ranks, json) = (keys(&ranks), keys(&json));
    for key in [
        "tokens",
        "token_type",
        "bos_token_id",
        "eos_token_id",
        "padding_token_id",
    ] {
        let key = format!("tokenizer.ggml.{key}");
        assert_eq!(ranks.get(&key), json.get(&key), "{key}");
    }
    let merges = |metadata: &Metadata| {
        metadata
            .strings("tokenizer.ggml.merges")
            .expect("strings")
            .expect("there")
            .to_vec()
    };
    assert_eq!(merges(&ranks), merges(&json));
    assert_eq!(
        ranks.string("tokenizer.ggml.pre").expect("a string"),
        Some("kimi-k2")
    );
}

/// Tokens of that vocabulary that no merge makes.
const N_MARKS_AND_BYTES: usize = 5 + 256;

/// Merging by scores that tokenizer.json implies is merging by those of `tokenizer.model`.
#[test]
fn scores_are_those_of_the_model() {
    let Some(dir) = shared("models/zoo/llama-2") else {
        return;
    };
    let keys = |files: &[&str]| {
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            std::fs::copy(dir.join(file), folder.path().join(file)).expect("a copy");
        }
        let vocabulary = Vocabulary::read(folder.path(), None).expect("sound");
        let source = vocabulary.source();
        let mut metadata = Metadata::new();
        vocabulary
            .metadata(&json!({}), 512, &mut metadata)
            .expect("sound");
        let notes = verify(&source, &metadata).expect("the same ids");
        assert!(notes.iter().all(|n| !n.contains("not compared")), "{notes:?}");
        metadata
    };
    let (model, json) = (keys(&["tokenizer.model"]), keys(&["tokenizer.json"]));
    let tokens = "tokenizer.ggml.tokens";
    assert_eq!(model.get(tokens), json.get(tokens));
    // Several merges may make one token, so the numbers are others, but the order is the same.
    let order = |metadata: &Metadata| {
        let Ok(Some(gguf::Array::F32(scores))) = metadata.array("tokenizer.ggml.scores") else {
            panic!("scores")
        };
        let mut ids: Vec<usize> = (N_MARKS_AND_BYTES..scores.len()).collect();
        ids.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        ids
    };
    assert_eq!(order(&model), order(&json));
}

/// The vocabularies of real models, where a folder of the packages is at hand.
#[test]
fn real_tokenizers_give_their_golden_ids() {
    let (Some(golden), Some(packages)) = (
        shared("golden/tokenizers"),
        std::env::var_os("GGUF_TOKENIZERS").map(PathBuf::from),
    ) else {
        crate::skip::skip("GGUF_TOKENIZERS names no folder of packages");
        return;
    };
    let mut wrong = Vec::new();
    for entry in golden.read_dir().expect("a folder") {
        let golden = read(&entry.expect("an entry").path());
        let package = golden["package"].as_str().expect("a name");
        let dir = packages.join(package).join("models");
        let json = read(&dir.join(TOKENIZER));
        let start = std::time::Instant::now();
        let vocabulary = Vocabulary::read(&dir, None).expect(package);
        let source = vocabulary.source();
        let n_rows = vocabulary.n_tokens();
        let mut metadata = Metadata::new();
        let notes = vocabulary
            .metadata(&json!({}), n_rows, &mut metadata)
            .expect(package);
        let read = start.elapsed();
        let tokenizer = gguf_runtime::Tokenizer::from_metadata(&metadata).expect(package);
        for case in golden["cases"].as_array().expect("cases") {
            let text = case["text"].as_str().expect("a text");
            let mut text = tokenizers::NormalizedString::from(text);
            // GGUF has no form for this normalizer: texts must come normalized.
            if json["normalizer"]["type"] == "NFC" {
                text.nfc();
            }
            let ids = tokenizer.encode(text.get(), false, true).expect(package);
            if json!(ids) != case["ids"] {
                wrong.push(format!(
                    "{package} on {}: {ids:?}, not {}",
                    case["text"], case["ids"]
                ));
            }
        }
        let start = std::time::Instant::now();
        match verify(&source, &metadata) {
            Ok(findings) => println!(
                "{package}: read in {read:?}, verified in {:?}, {notes:?} {findings:?}",
                start.elapsed()
            ),
            Err(e) => wrong.push(e.to_string()),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
