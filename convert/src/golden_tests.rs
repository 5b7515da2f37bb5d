//! Every checkpoint beside the project whose architecture is described, against what the reference converter makes of
//! it: keys, tensors and the bits of their values. (Vocabularies and the written file are tested elsewhere.)

use std::fmt::Write;
use std::path::{Path, PathBuf};

use gguf::{Metadata, Value};
use gguf_models::{arch, hf};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use crate::map::Output;
use crate::outtype::OutType;
use crate::plan::Model;
use crate::repack::Keep;
use crate::source::{Weights, read_json};

/// Keys that are written though the reference leaves them to the defaults of loaders.
const EXPLICIT: &[&str] = &[
    "attention.scale",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.temperature_length",
    "attention.temperature_scale",
    "expert_gating_func",
    "expert_weights_norm",
    "expert_weights_scale",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
];

struct Case {
    name: String,
    dir: PathBuf,
    golden: Json,
}

/// The checkpoints that have a golden.
fn cases() -> Vec<Case> {
    let shared = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared"));
    let mut cases = Vec::new();
    for folder in ["models/zoo", "models/sources"] {
        let Ok(entries) = std::fs::read_dir(shared.join(folder)) else {
            crate::skip::skip(&format!("`{}` is absent", shared.join(folder).display()));
            continue;
        };
        for entry in entries {
            let entry = entry.expect("readable");
            let name = entry.file_name().into_string().expect("UTF-8");
            let golden = shared.join(format!("golden/convert/{name}.json"));
            if golden.exists() {
                cases.push(Case {
                    name,
                    dir: entry.path(),
                    golden: read_json(&golden).expect("JSON"),
                });
            }
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

/// The model of a checkpoint in F32, or in the form of floating point that it has.
fn read(dir: &Path) -> (Model, Weights) {
    let config: Json = read_json(&dir.join("config.json")).expect("JSON");
    let text = hf::text_config(&config).expect("an object");
    let arch = arch::by_hf_class(hf::class(&config)).expect("every class is described");
    let weights = Weights::open(dir, &text).expect("sound");
    let outtype = OutType::resolve("f32", &weights).expect("known");
    let file_type = Keep::Floats.file_type(&weights).unwrap_or(outtype.file_type);
    let model = Model::new(arch, text, &weights, file_type.id, false);
    let mut model = model.unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let outputs = Keep::Floats.apply(model.outputs, &weights.files, &mut Vec::new());
    model.outputs = outputs.expect("readable");
    (model, weights)
}

/// A value as the goldens have it: type names, then the value.
fn value_record(value: &Value) -> Json {
    match value {
        Value::U32(v) => json!([["UINT32"], v]),
        Value::F32(v) => json!([["FLOAT32"], f64::from(*v)]),
        Value::Bool(v) => json!([["BOOL"], v]),
        Value::String(v) => json!([["STRING"], v]),
        other => panic!("a value that no converter writes: {other:?}"),
    }
}

fn compare_metadata(name: &str, found: &Metadata, golden: &Json) {
    let arch = golden["general.architecture"][1].as_str().expect("a name");
    let is_ours = |key: &str| key.starts_with(&format!("{arch}.")) || key == gguf::key::FILE_TYPE;
    let golden = golden.as_object().expect("pairs");
    let expected: Vec<_> = golden
        .iter()
        .filter(|(key, _)| is_ours(key))
        .map(|(key, value)| (key.as_str(), value.clone()))
        .collect();
    let (same, more): (Vec<_>, Vec<_>) = found
        .iter()
        .map(|(key, value)| (key, value_record(value)))
        .partition(|(key, _)| golden.contains_key(*key));
    assert_eq!(same, expected, "{name}");
    for (key, _) in more {
        let own = key.split_once('.').map_or(key, |(_, own)| own);
        assert!(EXPLICIT.contains(&own), "{name}: `{key}` is not in the golden");
    }
}

/// The SHA-256 of a tensor's values as F32, or of its blocks.
fn digest(output: &Output, weights: &Weights) -> String {
    let mut sha = Sha256::new();
    for view in &output.views {
        if let Some(kept) = view.native().filter(|f| f.geometry.block_elems > 1) {
            let n = kept.geometry.row_bytes(view.n_cols()).expect("whole blocks") * view.n_rows();
            let mut blocks = vec![0; n as usize];
            view.read_native(&weights.files, 0, &mut blocks)
                .expect("readable");
            sha.update(blocks);
            continue;
        }
        let mut values = vec![0.0; (view.n_rows() * view.n_cols()) as usize];
        view.read(&weights.files, 0, &mut values).expect("readable");
        for value in values {
            sha.update(value.to_le_bytes());
        }
    }
    let mut hex = String::new();
    for byte in sha.finalize() {
        write!(hex, "{byte:02x}").expect("strings take all");
    }
    hex
}

#[test]
fn keys_and_tensors_equal_the_reference() {
    let cases = cases();
    for case in &cases {
        let (model, weights) = read(&case.dir);
        compare_metadata(&case.name, &model.params, &case.golden["metadata"]);
        let tensors: Vec<_> = model
            .outputs
            .iter()
            .map(|o| (o.name.as_str(), o.shape.dims().to_vec()))
            .collect();
        let golden = case.golden["tensors"].as_array().expect("tensors");
        let expected: Vec<_> = golden
            .iter()
            .map(|t| {
                let dims = t[1].as_array().expect("dimensions");
                let dims = dims.iter().map(|d| d.as_u64().expect("a number")).collect();
                (t[0].as_str().expect("a name"), dims)
            })
            .collect();
        assert_eq!(tensors, expected, "{}", case.name);
        for (output, golden) in model.outputs.iter().zip(golden) {
            let digest = digest(output, &weights);
            assert_eq!(digest, golden[3], "{}: {}", case.name, output.name);
        }
    }
}

#[test]
fn layers_that_predict_further_tokens_are_kept_or_dropped_with_their_keys() {
    let Some(case) = cases().into_iter().find(|c| c.name == "glm4-moe") else {
        return;
    };
    let config: Json = read_json(&case.dir.join("config.json")).expect("JSON");
    let arch = arch::by_hf_class(hf::class(&config)).expect("known");
    let mut weights = Weights::open(&case.dir, &Json::Null).expect("sound");
    let last = || weights.tensors.iter().filter(|t| t.name.contains(".layers.2."));
    let mut more: Vec<_> = last().cloned().collect();
    for tensor in &mut more {
        tensor.name = tensor.name.replace(".layers.2.", ".layers.3.");
    }
    for (name, shape) in [
        ("eh_proj", vec![64, 128]),
        ("enorm", vec![64]),
        ("hnorm", vec![64]),
    ] {
        let mut tensor = more[0].clone();
        tensor.name = format!("model.layers.3.{name}.weight");
        tensor.shape = shape;
        more.push(tensor);
    }
    let n_more = more.len();
    weights.tensors.extend(more);
    for (no_mtp, n_block, n_nextn) in [(false, 4, 1), (true, 3, 0)] {
        let model = Model::new(arch, config.clone(), &weights, 0, no_mtp).expect("sound");
        let key = |key: &str| model.params.uint(&format!("glm4moe.{key}")).expect("a number");
        assert_eq!(key("block_count"), Some(n_block));
        assert_eq!(key("nextn_predict_layers"), Some(n_nextn));
        let names: Vec<_> = model.outputs.iter().map(|o| o.name.as_str()).collect();
        assert_eq!(names.contains(&"blk.3.nextn.eh_proj.weight"), !no_mtp);
        assert_eq!(names.iter().any(|n| n.starts_with("blk.3.")), !no_mtp);
        let note = format!("skipped: {n_more} multi-token prediction tensors");
        assert_eq!(model.notes.contains(&note), no_mtp, "{:?}", model.notes);
    }
}
