//! What tells a model apart, in a way that quantizing it leaves alone.
//!
//! Measurements of a model, such as an importance matrix, are made with one file of it and used with another: of other
//! tensor types, split otherwise, with the other layout of latent attention, with or without the layers that predict
//! further tokens. Norms are one-dimensional and stay F32 in all of them, so their values are the [`Identity`]'s
//! fingerprint. Beside it stand the settings that the forward pass honours: the same weights with another gating
//! function are another model as far as measurements go.

use std::collections::{BTreeMap, BTreeSet};

use gguf::{Array, GgufFile, Metadata, TensorInfo, Value, digest::Digest};

use crate::arch::{self, Architecture};
use crate::component::{Component, split_layer};
use crate::hparams::{self, HParams};
use crate::spec::ModelSpec;
use crate::{Error, Result};

/// Keys that a description reads and that change no number of a forward pass.
const NO_NUMBERS: &[&str] = &["context_length", "vocab_size"];

/// Elements of a norm at most; more are no norm of any model.
const MAX_NORM: u64 = 1 << 24;

/// Elements of an array, and bytes of a text, that a setting shows; of longer ones it has a digest.
const MAX_SHOWN: usize = 64;

/// What tells a model apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Value of `general.architecture`; empty if there is none.
    pub architecture: String,
    /// SHA-256, in hexadecimal digits, of the architecture and of names and F32 values of the norms, by name; without
    /// those of layers that predict further tokens.
    pub fingerprint: String,
    /// `key=value` of the keys that the architecture's forward pass honours, sorted. Long arrays are a digest. For an
    /// architecture that this build does not describe, all keys of it.
    pub settings: Vec<String>,
}

/// A setting in which two models differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// Its value among the settings that were compared; `None` if they lack the key.
    pub given: Option<String>,
    /// Its value in the metadata; `None` if they lack the key.
    pub found: Option<String>,
}

impl Identity {
    /// Reads the norms of a file, whatever its tensor types and wherever its bytes come from.
    ///
    /// # Errors
    /// A failed read; an architecture that is no string.
    pub fn of(file: &GgufFile) -> Result<Self> {
        let architecture = file.metadata.string(gguf::key::ARCHITECTURE)?.unwrap_or_default();
        Ok(Self {
            architecture: architecture.to_owned(),
            fingerprint: fingerprint(file, architecture)?.to_string(),
            settings: settings(architecture, &file.metadata),
        })
    }
}

fn fingerprint(file: &GgufFile, architecture: &str) -> Result<Digest> {
    let count = |key: &str| {
        file.metadata
            .uint(&format!("{architecture}.{key}"))
            .ok()
            .flatten()
    };
    let n_layers = count("block_count").unwrap_or(u64::MAX);
    let n_main = n_layers.saturating_sub(count("nextn_predict_layers").unwrap_or(0));
    let is_main = |t: &TensorInfo| split_layer(&t.name).is_none_or(|(i, _)| u64::from(i) < n_main);
    Digest::of_pieces(|add| {
        add(format!("{architecture}\n").as_bytes());
        for t in file.by_name() {
            let is_norm = Component::of(&t.name) == Component::Norm && t.shape.dims().len() == 1;
            if is_norm && t.shape.n_elems() <= MAX_NORM && is_main(t) {
                add(format!("{} {}\n", t.name, t.shape.n_elems()).as_bytes());
                for piece in values(file, t)?.chunks(1024) {
                    add(&piece.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
                }
            }
        }
        Ok(())
    })
}

/// A tensor's values; none of a type that cannot be decoded.
fn values(file: &GgufFile, tensor: &TensorInfo) -> Result<Vec<f32>> {
    let bytes = file.tensor_bytes(tensor)?;
    let n = tensor.shape.n_elems() as usize;
    let Some(format) = tensor.format() else {
        return Ok(Vec::new());
    };
    if format.geometry.tensor_bytes(n as u64, 1) != Some(bytes.len() as u64) {
        return Ok(Vec::new());
    }
    let mut values = vec![0.0; n];
    let decoded = format.decode_rows(n, &bytes, &mut values);
    Ok(decoded.map_or_else(Vec::new, |()| values))
}

fn settings(architecture: &str, metadata: &Metadata) -> Vec<String> {
    let keys = arch::by_name(architecture).ok().map(honoured);
    let line = |(key, value): (&str, &Value)| {
        let own = own_key(architecture, key)?;
        let is_honoured = keys.as_ref().is_none_or(|keys| keys.contains(own));
        (is_honoured && !NO_NUMBERS.contains(&own)).then(|| format!("{key}={}", shown(value)))
    };
    let mut lines: Vec<String> = metadata.iter().filter_map(line).collect();
    lines.sort();
    lines
}

/// Keys of an architecture, without its name, that decide on numbers of its forward pass.
fn honoured(arch: &Architecture) -> BTreeSet<&'static str> {
    let keys = hparams::read_by(arch).into_iter().map(|row| row.key);
    keys.filter(|key| !NO_NUMBERS.contains(key)).collect()
}

/// A key without the architecture's name; `None` for keys of no architecture or another.
fn own_key<'a>(architecture: &str, key: &'a str) -> Option<&'a str> {
    key.strip_prefix(architecture)?.strip_prefix('.')
}

/// Values by key; of several with one key the first.
fn by_key(settings: &[String]) -> BTreeMap<&str, &str> {
    let mut out = BTreeMap::new();
    for (key, value) in settings.iter().filter_map(|line| line.split_once('=')) {
        out.entry(key).or_insert(value);
    }
    out
}

/// The settings in which the model that `metadata` describe differs from the one that `given` was taken from. A key
/// that only one of them has, with the value that is usual without it, is no difference, nor are others that come out
/// as the same forward pass.
pub fn differences(given: &[String], metadata: &Metadata) -> Vec<Difference> {
    let Ok(Some(architecture)) = metadata.string(gguf::key::ARCHITECTURE) else {
        return Vec::new();
    };
    let found = settings(architecture, metadata);
    compare(architecture, &by_key(given), &by_key(&found), |key| {
        metadata.get(key).cloned()
    })
}

/// The same for two models of one architecture of which only the settings are known: those of `found` stand in place of
/// metadata.
pub fn differences_between(architecture: &str, given: &[String], found: &[String]) -> Vec<Difference> {
    let found = by_key(found);
    let value = |key: &str| found.get(key).and_then(|text| parsed(text));
    compare(architecture, &by_key(given), &found, value)
}

/// Differences of `given` from `found`, of which `value` has the values by key.
fn compare(
    architecture: &str,
    given: &BTreeMap<&str, &str>,
    found: &BTreeMap<&str, &str>,
    value: impl Fn(&str) -> Option<Value>,
) -> Vec<Difference> {
    let mut all = differing(given, found);
    let Ok(arch) = arch::by_name(architecture) else {
        return all;
    };
    // Each key that is left costs a forward pass; a file may have any number of others, which change nothing.
    let keys = honoured(arch);
    all.retain(|d| own_key(architecture, &d.key).is_some_and(|own| keys.contains(own)));
    let metadata = honoured_values(arch, &keys, value);
    let Ok(own) = forward(arch, &metadata) else {
        return all;
    };
    let is_same = |differences: &[Difference]| {
        let other = with(&metadata, differences)?;
        Some(forward(arch, &other).ok()? == own)
    };
    if is_same(&all) == Some(true) {
        return Vec::new();
    }
    // Keys that change nothing on their own are told only if no other is there to tell of.
    let alone = |d: &&Difference| is_same(std::slice::from_ref(*d)) != Some(true);
    let telling: Vec<Difference> = all.iter().filter(alone).cloned().collect();
    if telling.is_empty() { all } else { telling }
}

/// All keys whose values differ, sorted.
fn differing(given: &BTreeMap<&str, &str>, found: &BTreeMap<&str, &str>) -> Vec<Difference> {
    let keys: BTreeSet<&str> = given.keys().chain(found.keys()).copied().collect();
    let text = |of: &BTreeMap<&str, &str>, key: &str| of.get(key).map(|v| (*v).to_owned());
    keys.into_iter()
        .filter(|key| given.get(*key) != found.get(*key))
        .map(|key| Difference {
            key: key.to_owned(),
            given: text(given, key),
            found: text(found, key),
        })
        .collect()
}

/// Metadata of `keys` alone, and what no forward pass is without. The length of the vocabulary changes nothing, and its
/// tokens may be large.
fn honoured_values(
    arch: &Architecture,
    keys: &BTreeSet<&'static str>,
    value: impl Fn(&str) -> Option<Value>,
) -> Metadata {
    let full = |own: &str| format!("{}.{own}", arch.name);
    let mut out: Metadata = NO_NUMBERS.iter().map(|&own| (full(own), Value::U32(1))).collect();
    // It stands for the original context where that is not given.
    let read = keys.iter().copied().chain(["context_length"]);
    out.extend(read.filter_map(|own| Some((full(own), value(&full(own))?))));
    out
}

/// The metadata with the values that were given; `None` if one of them is only known by its digest.
fn with(metadata: &Metadata, differences: &[Difference]) -> Option<Metadata> {
    let mut out = metadata.clone();
    for d in differences {
        match &d.given {
            Some(text) => out.set(d.key.as_str(), parsed(text)?),
            None => drop(out.remove(&d.key)),
        }
    }
    Some(out)
}

/// The forward pass, without what changes no number of it.
fn forward(arch: &Architecture, metadata: &Metadata) -> Result<ModelSpec, Error> {
    let mut spec = arch.model(&HParams::from_gguf(arch.name, metadata)?)?;
    (spec.n_vocab, spec.n_ctx_train) = (0, 0);
    Ok(spec)
}

/// A value as text; [`parsed`] reads it back.
fn shown(value: &Value) -> String {
    let digest = || format!("sha256:{}", Digest::of(&value.to_bytes()));
    match value {
        Value::String(s) if s.len() > MAX_SHOWN => digest(),
        Value::String(s) => s.clone(),
        Value::Bool(v) => v.to_string(),
        Value::F32(v) => format!("{v:?}"),
        Value::F64(v) => format!("{:?}", *v as f32),
        Value::I8(v) => v.to_string(),
        Value::I16(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::Array(array) if array.len() > MAX_SHOWN => digest(),
        Value::Array(array) => match (array, array.to_uints()) {
            (_, Some(numbers)) => format!("{numbers:?}"),
            (Array::F32(v), _) => format!("{v:?}"),
            (Array::Bool(v), _) => format!("{v:?}"),
            _ => digest(),
        },
        other => other.to_uint().map_or_else(digest, |n| n.to_string()),
    }
}

/// The value that a text stands for, unless it is a digest.
fn parsed(text: &str) -> Option<Value> {
    if text.starts_with("sha256:") {
        return None;
    }
    if let Some(items) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        let items: Vec<&str> = items.split(", ").filter(|item| !item.is_empty()).collect();
        let numbers = |items: &[&str]| items.iter().map(|i| i.parse().ok()).collect::<Option<Vec<u32>>>();
        let flags = |items: &[&str]| {
            items
                .iter()
                .map(|i| i.parse().ok())
                .collect::<Option<Vec<bool>>>()
        };
        let floats = |items: &[&str]| items.iter().map(|i| i.parse().ok()).collect::<Option<Vec<f32>>>();
        return numbers(&items)
            .map(Array::U32)
            .or_else(|| flags(&items).map(Array::Bool))
            .or_else(|| floats(&items).map(Array::F32))
            .map(Value::Array);
    }
    let value = text.parse().map(Value::Bool);
    let value = value.or_else(|_| text.parse().map(Value::U32));
    let value = value.or_else(|_| text.parse().map(Value::I64));
    let value = value.or_else(|_| text.parse().map(Value::F32));
    Some(value.unwrap_or_else(|_| Value::String(text.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(extra: &[(&str, Value)]) -> Metadata {
        let mut m = Metadata::new();
        m.set("general.architecture", "deepseek2".into());
        m.set("general.name", "a name".into());
        for (key, value) in [
            ("block_count", 3_u32),
            ("context_length", 512),
            ("embedding_length", 64),
            ("feed_forward_length", 128),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 1),
            ("attention.kv_lora_rank", 32),
            ("attention.key_length", 48),
            ("attention.value_length", 32),
            ("attention.key_length_mla", 32),
            ("attention.value_length_mla", 16),
            ("rope.dimension_count", 16),
            ("leading_dense_block_count", 1),
            ("expert_count", 4),
            ("expert_used_count", 2),
            ("expert_feed_forward_length", 32),
            ("expert_shared_count", 1),
            ("vocab_size", 100),
        ] {
            m.set(format!("deepseek2.{key}"), value.into());
        }
        m.set(
            "deepseek2.attention.layer_norm_rms_epsilon",
            Value::F32(0.000_001),
        );
        for (key, value) in extra {
            m.set(format!("deepseek2.{key}"), value.clone());
        }
        m
    }

    fn told(given: &Metadata, found: &Metadata) -> Vec<(String, Option<String>, Option<String>)> {
        let given = settings("deepseek2", given);
        let all = differences(&given, found);
        let found = settings("deepseek2", found);
        assert_eq!(differences_between("deepseek2", &given, &found), all);
        let all = all.into_iter();
        all.map(|d| (d.key, d.given, d.found)).collect()
    }

    #[test]
    fn settings_are_what_the_forward_pass_honours() {
        let all = settings("deepseek2", &metadata(&[]));
        assert!(all.is_sorted());
        assert!(all.contains(&"deepseek2.attention.layer_norm_rms_epsilon=1e-6".to_owned()));
        assert!(all.contains(&"deepseek2.expert_used_count=2".to_owned()));
        let none = ["general.", "context_length", "vocab_size"];
        assert!(
            none.iter()
                .all(|part| all.iter().all(|line| !line.contains(part)))
        );
    }

    #[test]
    fn a_gating_function_that_was_put_right_is_told() {
        let softmax = metadata(&[("expert_gating_func", Value::U32(1))]);
        let sigmoid = metadata(&[("expert_gating_func", Value::U32(2))]);
        let (key, text) = ("deepseek2.expert_gating_func".to_owned(), |s: &str| {
            Some(s.to_owned())
        });
        assert_eq!(told(&softmax, &sigmoid), [(key.clone(), text("1"), text("2"))]);
        assert_eq!(told(&metadata(&[]), &sigmoid), [(key.clone(), None, text("2"))]);
        assert_eq!(told(&sigmoid, &metadata(&[])), [(key, text("2"), None)]);
    }

    #[test]
    fn what_comes_out_the_same_is_no_difference() {
        let plain = metadata(&[]);
        let usual = metadata(&[
            ("expert_gating_func", Value::U32(1)),
            ("expert_weights_scale", Value::F32(1.0)),
            ("context_length", Value::U32(4096)),
        ]);
        assert_eq!(told(&plain, &usual), []);
        assert_eq!(told(&usual, &plain), []);
        let more = metadata(&[
            ("expert_weights_scale", Value::F32(2.5)),
            ("expert_gating_func", Value::U32(1)),
        ]);
        assert_eq!(told(&plain, &more).len(), 1);
    }

    #[test]
    fn any_number_of_settings_is_compared_by_key() {
        const N: usize = 20_000;
        let many = |mut settings: Vec<String>, architecture: &str, value: u32| {
            settings.extend((0..N).map(|i| format!("{architecture}.k{i}={value}")));
            settings
        };
        let between = |architecture: &str, given: &[String], found: &[String]| {
            let all = differences_between(architecture, given, found).into_iter();
            all.map(|d| (d.key, d.given, d.found)).collect::<Vec<_>>()
        };
        // Of an architecture that this build does not describe every key counts.
        let (given, mut found) = (many(vec![], "none", 1), many(vec![], "none", 2));
        let one_and_two = |key: &str| (key.to_owned(), Some("1".to_owned()), Some("2".to_owned()));
        let mut expected: Vec<_> = (0..N).map(|i| one_and_two(&format!("none.k{i}"))).collect();
        expected.sort();
        assert_eq!(between("none", &given, &found), expected);
        found.extend(given.iter().cloned());
        assert_eq!(between("none", &given, &found), expected, "the first counts");
        assert_eq!(between("none", &given, &given), []);
        // Of one that it describes those that the forward pass reads.
        let gating = |n: u32| settings("deepseek2", &metadata(&[("expert_gating_func", Value::U32(n))]));
        let (given, found) = (many(gating(1), "deepseek2", 1), many(gating(2), "deepseek2", 2));
        let expected = [one_and_two("deepseek2.expert_gating_func")];
        assert_eq!(between("deepseek2", &given, &found), expected);
        let sigmoid = metadata(&[("expert_gating_func", Value::U32(2))]);
        let all: Vec<String> = differences(&given, &sigmoid).into_iter().map(|d| d.key).collect();
        assert_eq!(all, ["deepseek2.expert_gating_func"]);
        let mut same = many(gating(2), "deepseek2", 1);
        same.push("deepseek2.none=sha256:0".to_owned());
        assert_eq!(between("deepseek2", &same, &found), []);
        assert_eq!(differences(&same, &sigmoid), []);
    }

    #[test]
    fn values_come_back_from_their_text() {
        for value in [
            Value::U32(7),
            Value::F32(0.1),
            Value::F32(10_000.0),
            Value::Bool(true),
            Value::String("yarn".to_owned()),
            vec![1_u32, 2].into(),
            vec![0.5_f32, 7.0].into(),
        ] {
            assert_eq!(parsed(&shown(&value)), Some(value));
        }
        assert_eq!(parsed(&shown(&vec![0_u32; 100].into())), None);
    }
}
