//! `--metadata`: a JSON file with keys that the user sets.

use std::collections::HashMap;
use std::path::Path;

use gguf::{Array, Metadata, Value};
use serde_json::{Map, Value as Json};

use crate::Result;
use crate::error::Error;
use crate::source::read_json;

/// Keys that say what is in the file; they are not for setting.
const FIXED: [&str; 4] = [
    gguf::key::ARCHITECTURE,
    gguf::key::ALIGNMENT,
    gguf::key::FILE_TYPE,
    gguf::key::QUANTIZATION_VERSION,
];

/// What keys that are new begin with: what describes a model without changing what it computes.
const DESCRIPTIVE: &str = "general.";

/// The pairs of a file, in its order.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    file: String,
    pairs: Map<String, Json>,
}

impl Overrides {
    /// Reads an object of keys and values.
    ///
    /// # Errors
    /// A file that cannot be read or is no object.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        Ok(Self {
            file: path.display().to_string(),
            pairs: read_json(path)?,
        })
    }

    /// The name, if the file sets one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.pairs.get("general.name")?.as_str()
    }

    /// Sets the pairs: those that are there get the new value in the type that they have, others go behind the last
    /// key of their kind.
    ///
    /// # Errors
    /// Keys that are not for setting, values that do not fit, and keys beside `general.` that the model does not have.
    pub(crate) fn apply(&self, metadata: &mut Metadata) -> Result<()> {
        let mut pairs: Vec<(String, Value)> =
            metadata.iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
        let places: HashMap<&str, usize> = metadata.iter().map(|(key, _)| key).zip(0..).collect();
        let mut new = Vec::new();
        for (key, json) in &self.pairs {
            if let Some(&i) = places.get(&**key) {
                pairs[i].1 = self.value(key, json, Some(&pairs[i].1))?;
            } else {
                new.push((key.clone(), self.value(key, json, None)?));
            }
        }
        // New keys go behind those of their kind, which are in front.
        let end = pairs
            .iter()
            .take_while(|(key, _)| key.starts_with(DESCRIPTIVE))
            .count();
        pairs.splice(end..end, new);
        *metadata = pairs.into_iter().collect();
        Ok(())
    }

    fn value(&self, key: &str, json: &Json, there: Option<&Value>) -> Result<Value> {
        let object = format!("`{}` key `{key}`", self.file);
        if FIXED.contains(&key) || key == gguf::key::PAD || gguf::key::SPLIT.contains(&key) {
            let what = "a key that describes the model, as this one is for the converter to set";
            return Err(Error::mismatch(object, what, json));
        }
        let Some(there) = there else {
            if !key.starts_with(DESCRIPTIVE) {
                let what = "a key that the model has, or one that begins with `general.`";
                return Err(Error::mismatch(object, what, "another"));
            }
            let expected = "a text, number, yes or no, or list of texts";
            return of(json).ok_or_else(|| Error::mismatch(object, expected, json));
        };
        let expected = || format!("a value of type {}", there.type_name());
        like(there, json).ok_or_else(|| Error::mismatch(object, expected(), json))
    }
}

/// A value of its own type.
fn of(json: &Json) -> Option<Value> {
    match json {
        Json::Bool(flag) => Some(Value::Bool(*flag)),
        Json::String(text) => Some(Value::String(text.clone())),
        Json::Array(items) => {
            let texts: Option<Vec<String>> = items.iter().map(|i| Some(i.as_str()?.to_owned())).collect();
            Some(Value::Array(Array::String(texts?.into_iter().collect())))
        }
        Json::Number(n) => match n.as_u64() {
            Some(n) => u32::try_from(n).map_or(Some(Value::U64(n)), |n| Some(Value::U32(n))),
            None => n.as_f64().map(|x| Value::F32(x as f32)),
        },
        Json::Null | Json::Object(_) => None,
    }
}

/// A value of the type of another; `None` if the type cannot hold it.
fn like(there: &Value, json: &Json) -> Option<Value> {
    let uint = || json.as_u64();
    match there {
        Value::U32(_) => uint()?.try_into().ok().map(Value::U32),
        Value::U64(_) => uint().map(Value::U64),
        Value::F32(_) => json
            .as_f64()
            .map(|x| x as f32)
            .filter(|x| x.is_finite())
            .map(Value::F32),
        Value::Bool(_) | Value::String(_) | Value::Array(Array::String(_)) => {
            of(json).filter(|value| value.type_name() == there.type_name())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied(pairs: &Json) -> std::result::Result<Vec<(String, Value)>, String> {
        let mut metadata = Metadata::new();
        metadata.set(gguf::key::ARCHITECTURE, Value::String("a".to_owned()));
        metadata.set("general.name", Value::String("Old".to_owned()));
        metadata.set("a.context_length", Value::U32(512));
        let overrides = Overrides {
            file: "m.json".to_owned(),
            pairs: pairs.as_object().cloned().expect("an object"),
        };
        overrides.apply(&mut metadata).map_err(|e| e.to_string())?;
        Ok(metadata.iter().map(|(k, v)| (k.to_owned(), v.clone())).collect())
    }

    #[test]
    fn known_keys_keep_type_and_place_and_new_ones_follow_their_kind() {
        let pairs = json!({"general.license": "mit", "a.context_length": 4096, "general.name": "New",
            "general.tags": ["x", "y"]});
        let keys: Vec<_> = applied(&pairs).expect("sound").into_iter().collect();
        let text = |t: &str| Value::String(t.to_owned());
        let tags = Value::Array(Array::String(
            ["x".to_owned(), "y".to_owned()].into_iter().collect(),
        ));
        let expected = [
            ("general.architecture", text("a")),
            ("general.name", text("New")),
            ("general.license", text("mit")),
            ("general.tags", tags),
            ("a.context_length", Value::U32(4096)),
        ];
        assert_eq!(keys, expected.map(|(k, v)| (k.to_owned(), v)));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_key() {
        for (pairs, part) in [
            (json!({"general.architecture": "b"}), "`general.architecture`"),
            (json!({"a.rope.freq_base": 1.0}), "a key that the model has"),
            (
                json!({"a.context_length": "long"}),
                "a value of type u32, found \"long\"",
            ),
            (json!({"a.context_length": -1}), "a value of type u32"),
            (json!({"general.x": {"y": 1}}), "a text, number"),
            (json!({"general.x": [1]}), "a text, number"),
            (json!({"general.alignment": 64}), "`general.alignment`"),
        ] {
            let text = applied(&pairs).expect_err("refused");
            assert!(
                text.contains(part) && text.starts_with("`m.json` key `"),
                "{text}"
            );
        }
    }
}
