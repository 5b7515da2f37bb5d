//! Metadata keys that readers take in one type only, and values that should not be published.

use std::borrow::Cow;

use gguf::validate::{Finding, Findings};
use gguf::{Array, Metadata, Value, key, short};
use gguf_models::keys;

/// Folders that a path of a person's machine begins with.
const PRIVATE: &[&str] = &[
    "/home/",
    "/root/",
    "/Users/",
    "/mnt/",
    "/media/",
    "/tmp/",
    "/var/",
    "/opt/",
    "/data/",
    "/workspace/",
    "/content/",
    "/kaggle/",
    "file://",
    "~/",
];

/// Strings of an array that are looked at for paths: lists of data sets are short, vocabularies are not.
const N_PATHS: usize = 64;

pub(super) fn check(metadata: &Metadata, findings: &mut Findings) {
    let architecture = keys::architecture(metadata);
    for (key, value) in metadata.iter() {
        check_type(key, value, architecture, findings);
        check_paths(key, value, findings);
    }
    let templates = metadata
        .iter()
        .filter(|(key, _)| *key == key::CHAT_TEMPLATE || key.starts_with("tokenizer.chat_template."));
    for (key, value) in templates {
        if matches!(value, Value::String(text) if text.trim().is_empty()) {
            let what = "the chat template is empty: programs fall back to one of their own";
            let remedy = "set the key from the model's template";
            findings.push("chat templates that are empty", || {
                Finding::unusual(Finding::key(key), None, what, remedy)
            });
        }
    }
}

fn check_type(key: &str, value: &Value, architecture: &str, findings: &mut Findings) {
    // The container has its own findings for these.
    if key == key::ALIGNMENT || key::SPLIT.contains(&key) {
        return;
    }
    let Some(expected) = keys::type_of(key, architecture).filter(|t| !t.fits(value)) else {
        return;
    };
    let found = value.type_name();
    let what = format!("expected type {expected}, found {found}");
    let remedy = "set the key again in that type";
    // What describes a model is for people; loaders pass it over, or nearly.
    let describes = key.starts_with("general.")
        && ![key::ARCHITECTURE, key::FILE_TYPE, key::QUANTIZATION_VERSION].contains(&key);
    if describes {
        findings.push("keys about the model of another type", || {
            Finding::unusual(Finding::key(key), None, what, remedy)
        });
    } else {
        findings.push("keys of another type", || {
            let what = format!("{what}: llama.cpp refuses the model");
            Finding::severe(Finding::key(key), None, what, remedy)
        });
    }
}

fn check_paths(key: &str, value: &Value, findings: &mut Findings) {
    let path = match value {
        Value::String(text) => Some(text.as_str()).filter(|t| is_private(t)).map(Cow::Borrowed),
        Value::Array(Array::String(all)) if all.len() <= N_PATHS => all.iter().find(|t| is_private(t)),
        _ => None,
    };
    if let Some(path) = path {
        findings.push("keys with a path of somebody's machine", || {
            let path = short(&path);
            let what = format!("a path of somebody's machine stands in the file: `{path}`");
            let remedy = "set the key to the bare name before publishing";
            Finding::unusual(Finding::key(key), None, what, remedy)
        });
    }
}

/// Whether a value is one path and nothing else, on any system.
fn is_private(text: &str) -> bool {
    let drive = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.get(1..3).is_some_and(|s| s == ":\\" || s == ":/");
    let share = text.starts_with("\\\\");
    let unix = PRIVATE.iter().any(|p| text.starts_with(p));
    (drive || share || unix) && !text.contains('\n')
}

#[cfg(test)]
mod tests {
    use super::is_private;

    #[test]
    fn paths_are_told_from_text() {
        for path in [
            "/home/ann/imatrix.dat",
            "C:\\Users\\ann\\m.gguf",
            "D:/models/x",
            "\\\\nas\\share\\x",
            "~/x",
        ] {
            assert!(is_private(path), "{path}");
        }
        for text in [
            "imatrix.dat",
            "https://example.org/home/x",
            "a: b",
            "/",
            "",
            "/home/{{ x }}\nand more",
        ] {
            assert!(!is_private(text), "{text}");
        }
    }
}
