//! Checks of metadata that any reader relies on, whatever the architecture.

use super::{Finding, Findings};
use crate::{Array, GgufFile, Value, key};

/// Checks the types of well-known keys, array nesting and that the vocabulary agrees with itself: arrays of
/// the same length, special tokens inside it.
pub fn metadata(file: &GgufFile) -> Vec<Finding> {
    let mut findings = Findings::new();
    for (key, value) in file.metadata.iter() {
        if let Value::Array(Array::Array(_)) = value {
            let what = "arrays of arrays: llama.cpp refuses the file";
            findings.push("keys with arrays of arrays", || {
                Finding::severe(Finding::key(key), None, what, "flatten the array")
            });
        }
    }
    match file.metadata.get(key::ARCHITECTURE) {
        Some(Value::String(_)) => {}
        found => {
            let found = found.map_or("nothing".to_owned(), Value::type_name);
            let what = format!("expected a string, found {found}: no program can tell how to run the model");
            findings.one(Finding::unusual(
                Finding::key(key::ARCHITECTURE),
                None,
                what,
                "set the key",
            ));
        }
    }
    vocabulary(file, &mut findings);
    findings.into_vec()
}

fn vocabulary(file: &GgufFile, findings: &mut Findings) {
    let Some(Value::Array(Array::String(tokens))) = file.metadata.get(key::TOKENS) else {
        return;
    };
    for key in key::PER_TOKEN {
        if let Some(Value::Array(array)) = file.metadata.get(key)
            && array.len() != tokens.len()
        {
            let what = format!(
                "expected one element for each of {} tokens, found {}",
                tokens.len(),
                array.len()
            );
            findings.one(Finding::severe(
                Finding::key(key),
                None,
                what,
                "convert the model again",
            ));
        }
    }
    for (key, value) in file.metadata.iter() {
        if !is_token_id(key) {
            continue;
        }
        // Negative numbers and the largest one stand for "none".
        if let Some(id) = value.to_uint()
            && id != u64::from(u32::MAX)
            && id >= tokens.len() as u64
        {
            findings.push("keys with a token beyond the vocabulary", || {
                let what = format!("expected a token below {}, found {id}", tokens.len());
                Finding::severe(
                    Finding::key(key),
                    None,
                    what,
                    "set the key to a token of the vocabulary",
                )
            });
        }
    }
}

/// Whether a key holds the number of a token: `tokenizer.ggml.bos_token_id` and its like.
fn is_token_id(key: &str) -> bool {
    key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id")
}
