//! Equality with the reference converter and, for types that a copy gives too, the reference quantizer.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use gguf::{Array, GgufFile, Value};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::{carried, convert_ok, shared};

/// Arrays longer than this are given by length and digest.
const N_LITERAL: usize = 64;

fn read_json(path: &Path) -> Json {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

fn digest(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(bytes) {
        write!(hex, "{byte:02x}").expect("strings take all");
    }
    hex
}

/// A tensor's shape, type and digest as the goldens have them.
fn tensor_record(file: &GgufFile, i: usize) -> Json {
    let tensor = &file.tensors[i];
    let bytes = file.tensor_bytes(tensor).expect("readable");
    serde_json::json!([
        tensor.name,
        tensor.shape.dims(),
        tensor.type_name(),
        digest(&bytes)
    ])
}

/// A value as the goldens have it: type names, then the value.
fn value_record(value: &Value) -> Json {
    let record = |types: Json, value: Json| serde_json::json!([types, value]);
    match value {
        Value::U32(v) => record("UINT32".into(), (*v).into()),
        Value::F32(v) => record("FLOAT32".into(), f64::from(*v).into()),
        Value::Bool(v) => record("BOOL".into(), (*v).into()),
        Value::String(v) => record("STRING".into(), v.as_str().into()),
        Value::Array(Array::String(v)) => record("STRING".into(), array_record(&v.to_vec())),
        Value::Array(Array::I32(v)) => record("INT32".into(), array_record(v)),
        other => panic!("a value that no converter writes: {other:?}"),
    }
}

/// Long arrays by the digest of their JSON with a blank behind each comma.
fn array_record<T: serde::Serialize>(items: &[T]) -> Json {
    let texts: Vec<_> = items
        .iter()
        .map(|i| serde_json::to_string(i).expect("JSON"))
        .collect();
    if items.len() <= N_LITERAL {
        return serde_json::to_value(items).expect("JSON");
    }
    let text = format!("[{}]", texts.join(", "));
    serde_json::json!({"len": items.len(), "sha256": digest(text.as_bytes())})
}

#[test]
fn metadata_and_tensors_equal_the_reference() {
    let (Some(zoo), Some(golden)) = (
        shared("models/zoo/qwen3moe"),
        shared("golden/convert/qwen3moe.json"),
    ) else {
        return;
    };
    let golden = read_json(&golden);
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.gguf");
    convert_ok(&zoo, &out, &["--outtype", "f32"]);
    let file = GgufFile::open(&out).expect("readable");
    let expected = golden["metadata"].as_object().expect("pairs");
    // Ours has more keys: those that the reference leaves to the defaults of loaders.
    let common = || {
        file.metadata
            .iter()
            .filter(|(key, _)| expected.contains_key(*key))
    };
    let keys: Vec<_> = common().map(|(key, _)| key).collect();
    assert_eq!(keys, expected.keys().map(String::as_str).collect::<Vec<_>>());
    for (key, value) in common() {
        // The golden has a list of nested types, the element's last.
        let types = expected[key][0].as_array().expect("types");
        let record = value_record(value);
        assert_eq!(
            (&record[0], &record[1]),
            (types.last().expect("a type"), &expected[key][1]),
            "{key}"
        );
    }
    let tensors: Vec<_> = (0..file.tensors.len()).map(|i| tensor_record(&file, i)).collect();
    assert_eq!(Json::from(tensors), golden["tensors"]);
}

#[test]
fn a_bf16_checkpoint_gives_the_reference_file() {
    let Some(golden) = shared("golden/quantize/qwen3moe-bf16.gguf") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.gguf");
    convert_ok(&carried(), &out, &["--outtype", "auto"]);
    let (ours, theirs) = (
        GgufFile::open(&out).expect("readable"),
        GgufFile::open(&golden).expect("readable"),
    );
    for (key, value) in theirs.metadata.iter() {
        assert_eq!(ours.metadata.get(key), Some(value), "{key}");
    }
    let tensors =
        |file: &GgufFile| -> Vec<_> { (0..file.tensors.len()).map(|i| tensor_record(file, i)).collect() };
    assert_eq!(tensors(&ours), tensors(&theirs));
}

#[test]
fn every_type_equals_what_the_reference_makes_of_bf16() {
    let golden = read_json(&carried().join("../golden/quantize-qwen3moe.json"));
    let folder = tempfile::tempdir().expect("a folder");
    for outtype in ["F32", "F16", "Q8_0"] {
        let out = folder.path().join(outtype);
        convert_ok(&carried(), &out, &["--outtype", outtype]);
        let file = GgufFile::open(&out).expect("readable");
        // The reference quantizer sorts tensors by layer and name.
        let ours: HashMap<_, _> = (0..file.tensors.len())
            .map(|i| (file.tensors[i].name.clone(), tensor_record(&file, i)))
            .collect();
        let theirs = golden[outtype]["tensors"].as_array().expect("tensors");
        assert_eq!(ours.len(), theirs.len());
        for tensor in theirs {
            let name = tensor[0].as_str().expect("a name");
            assert_eq!(ours.get(name), Some(tensor), "{outtype}");
        }
    }
}
