//! From a checkpoint's `config.json` to the keys of a GGUF file.

use gguf::{Metadata, Value};
use serde_json::Value as Json;

use crate::arch::Architecture;
use crate::hparams::{self, Hf, RopeScaling, Row, Slot};
use crate::{Error, Result};

/// A setting that the architecture's description takes for granted.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// Dotted paths in the config; every one that is there must have one of the values.
    pub hf: &'static [&'static str],
    /// The values as JSON text.
    pub is: &'static [&'static str],
    /// Whether an absent (or null) setting means the first value.
    pub if_absent: bool,
}

impl Fixed {
    /// A setting that has one value, which it also has where it is absent.
    pub const fn to(hf: &'static [&'static str], is: &'static [&'static str]) -> Self {
        Self {
            hf,
            is,
            if_absent: true,
        }
    }
}

/// The gate is `silu`.
pub const SILU: Fixed = Fixed::to(&["hidden_act"], &["\"silu\""]);

/// The gate is `gelu`, by the approximation with `tanh`.
pub const GELU: Fixed = Fixed::to(&["hidden_activation"], &["\"gelu_pytorch_tanh\""]);

/// Every layer sees all positions before its own.
pub const NO_SLIDING_WINDOW: Fixed = Fixed::to(&["use_sliding_window"], &["false"]);

/// Where a config has the settings of the rotation, oldest spelling first. Models with two rotations have an object
/// for each kind of layer; that of full attention is the one that is meant.
pub const ROPE_SETTINGS: &[&str] = &[
    "rope_scaling",
    "rope_parameters",
    "rope_parameters.full_attention",
];

/// A word for routers whose probabilities are a softmax over the chosen experts only; configs have none.
pub const SOFTMAX_OF_CHOSEN: &str = "softmax of the chosen";

/// The type of a rotation that nothing scales.
const ROPE_DEFAULT: &str = "default";

/// The config that describes the text model: `text_config`, where there is one, laid over the rest.
///
/// # Errors
/// A `text_config` that is no object.
pub fn text_config(config: &Json) -> Result<Json> {
    const KEY: &str = "text_config";
    let mut merged = config.clone();
    let Some(text) = lookup(config, KEY) else {
        return Ok(merged);
    };
    let text = text
        .as_object()
        .ok_or_else(|| wrong_type(KEY, "an object of settings, or null", text))?;
    if let Some(all) = merged.as_object_mut() {
        all.extend(text.iter().map(|(k, v)| (k.clone(), v.clone())));
    }
    Ok(merged)
}

/// The value at a dotted path; null counts as absent.
pub fn lookup<'a>(config: &'a Json, path: &str) -> Option<&'a Json> {
    path.split('.')
        .try_fold(config, |at, part| at.get(part))
        .filter(|v| !v.is_null())
}

/// The first of some settings of the rotation that is there, with its path.
fn lookup_rope<'a>(config: &'a Json, names: &[&str]) -> Option<(String, &'a Json)> {
    ROPE_SETTINGS.iter().find_map(|parent| {
        names.iter().find_map(|name| {
            let path = format!("{parent}.{name}");
            let found = lookup(config, &path)?;
            Some((path, found))
        })
    })
}

/// A setting of the rotation, such as `factor`, under any of its spellings; null counts as absent.
pub fn rope_setting<'a>(config: &'a Json, name: &str) -> Option<&'a Json> {
    lookup_rope(config, &[name]).map(|(_, found)| found)
}

/// The type of the rotation: `default` where there are no settings, else what they say.
///
/// # Errors
/// A type that is no string, and scaling without a type.
pub fn rope_type(config: &Json) -> Result<&str> {
    match lookup_rope(config, &["rope_type", "type"]) {
        Some((path, found)) => found.as_str().ok_or_else(|| wrong_type(&path, "a string", found)),
        None => match lookup_rope(config, &["factor"]) {
            Some((path, _)) => {
                let parent = path.trim_end_matches(".factor");
                let object = format!("config.json `{parent}.rope_type`");
                Err(Error::mismatch(object, "the type of the scaling", "nothing"))
            }
            None => Ok(ROPE_DEFAULT),
        },
    }
}

/// Elements of a head that are rotated: a part of `head_dim`, or of the embedding's share of a head.
///
/// # Errors
/// Settings of another type, and a part that is none.
pub fn rotated(config: &Json) -> Result<Option<Json>> {
    rotated_or(config, 1.0)
}

/// The same for a class that rotates the part `default` of a head where its config does not say.
///
/// # Errors
/// As [`rotated`].
pub fn rotated_or(config: &Json, default: f64) -> Result<Option<Json>> {
    const PART: &[&str] = &["partial_rotary_factor", "rope_parameters.partial_rotary_factor"];
    let head_dim = if let Some(head_dim) = count(config, "head_dim")? {
        head_dim
    } else {
        let sizes = (
            count(config, "hidden_size")?,
            count(config, "num_attention_heads")?,
        );
        let (Some(n_embd), Some(n_head)) = sizes else {
            return Ok(None);
        };
        // A number of heads that does not divide is refused where the keys are read back.
        n_embd / n_head.max(1)
    };
    let part = match PART.iter().find_map(|p| Some((p, lookup(config, p)?))) {
        None => default,
        Some((path, part)) => part
            .as_f64()
            .filter(|p| *p > 0.0 && *p <= 1.0)
            .ok_or_else(|| wrong_type(path, "a number above 0 up to 1", part))?,
    };
    Ok(Some(((head_dim as f64 * part) as u64).into()))
}

/// The name of the checkpoint's class; empty if the config has none.
pub fn class(config: &Json) -> &str {
    config["architectures"][0].as_str().unwrap_or_default()
}

/// A setting that is a whole number; `None` if absent or null.
///
/// # Errors
/// A value of another type.
pub fn count(config: &Json, path: &str) -> Result<Option<u64>> {
    let of = |found: &Json| {
        whole_number(found).ok_or_else(|| wrong_type(path, "a whole number that is not negative", found))
    };
    lookup(config, path).map(of).transpose()
}

/// A setting that is a number; `None` if absent or null.
///
/// # Errors
/// A value of another type.
pub fn number(config: &Json, path: &str) -> Result<Option<f64>> {
    let of = |found: &Json| found.as_f64().ok_or_else(|| wrong_type(path, "a number", found));
    lookup(config, path).map(of).transpose()
}

/// A setting that is yes or no; `None` if absent or null.
///
/// # Errors
/// A value of another type.
pub fn flag(config: &Json, path: &str) -> Result<Option<bool>> {
    let of = |found: &Json| {
        found
            .as_bool()
            .ok_or_else(|| wrong_type(path, "true or false", found))
    };
    lookup(config, path).map(of).transpose()
}

/// A setting that is there once or, with one value, for every layer; `None` if absent or null.
///
/// # Errors
/// A list whose values differ, or an empty one.
pub fn same_for_all(config: &Json, path: &str) -> Result<Option<Json>> {
    let Some(found) = lookup(config, path) else {
        return Ok(None);
    };
    match found.as_array().map(Vec::as_slice) {
        None => Ok(Some(found.clone())),
        Some([first, rest @ ..]) if rest.iter().all(|v| v == first) => Ok(Some(first.clone())),
        Some(_) => Err(wrong_type(path, "the same value for every layer", found)),
    }
}

/// Every how many layers one attends to all positions, 0 if none does: from the list of the layers' types, else from
/// the first of some settings that is there, else the usual number.
///
/// # Errors
/// A list with another order than one such layer behind a fixed number of others.
pub fn full_attention_period(config: &Json, paths: &[&str], usual: u64) -> Result<Option<Json>> {
    const LIST: &str = "layer_types";
    let Some(list) = lookup(config, LIST) else {
        for path in paths {
            if let Some(period) = count(config, path)? {
                return Ok(Some(period.into()));
            }
        }
        return Ok(Some(usual.into()));
    };
    let is_full: Vec<bool> = list
        .as_array()
        .into_iter()
        .flatten()
        .map(|t| t == "full_attention")
        .collect();
    let period = is_full.iter().position(|full| *full).map_or(0, |first| first + 1);
    let regular = |(il, full): (usize, &bool)| *full == (period > 0 && (il + 1).is_multiple_of(period));
    if is_full.is_empty() || !is_full.iter().enumerate().all(regular) {
        let expected = "`full_attention` at equal distances, as other orders are not supported";
        return Err(wrong_type(LIST, expected, list));
    }
    // In a model with fewer layers than the usual distance the list does not show it.
    Ok(Some(
        if period == 0 && is_full.len() < usual as usize {
            usual
        } else {
            period as u64
        }
        .into(),
    ))
}

/// A number without fraction that is not negative; configs have both spellings, `32` and `32.0`.
pub fn whole_number(json: &Json) -> Option<u64> {
    let exact = |f: f64| (f >= 0.0 && f.fract() == 0.0 && f < 9e15).then_some(f as u64);
    json.as_u64().or_else(|| json.as_f64().and_then(exact))
}

/// The refusal of a setting's value.
pub fn wrong_type(path: &str, expected: &str, found: &Json) -> Error {
    Error::mismatch(format!("config.json `{path}`"), expected, shortened(found))
}

/// The front of a value's JSON.
fn shortened(json: &Json) -> String {
    const N_CHARS: usize = 80;
    let text = json.to_string();
    match text.char_indices().nth(N_CHARS) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// Appends `{arch}.*` keys of a config (see [`text_config`]) to `out`, and `general.file_type` at the place
/// where the reference converter writes it. Keys that the reference leaves to a loader's default
/// ([`Architecture::explicit`]) come last.
///
/// # Errors
/// A required setting that is absent, a value of another type or out of range, and settings that the
/// architecture's description does not cover; each names the config path.
pub fn metadata(arch: &Architecture, config: &Json, file_type: u32, out: &mut Metadata) -> Result<()> {
    check_parents(arch, config)?;
    check_rope_type(arch, config)?;
    for fixed in arch.fixed {
        check_fixed(arch, fixed, config)?;
    }
    let mut pairs: Vec<(String, Value)> = Vec::new();
    for row in hparams::written(arch) {
        if matches!(row.slot, Slot::FileType) {
            pairs.push((gguf::key::FILE_TYPE.to_owned(), Value::U32(file_type)));
        } else if let Some(value) = value(arch, row, config)? {
            let key = format!("{}.{}", arch.name, row.key);
            match pairs.iter_mut().find(|(k, _)| *k == key) {
                Some((_, before)) => *before = value,
                None => pairs.push((key, value)),
            }
        }
    }
    for row in arch.explicit.iter().copied().flatten() {
        let key = format!("{}.{}", arch.name, row.key);
        if pairs.iter().all(|(k, _)| *k != key)
            && let Some(value) = value(arch, row, config)?
        {
            pairs.push((key, value));
        }
    }
    for row in hparams::read_by(arch).into_iter().filter(|row| row.required) {
        let key = format!("{}.{}", arch.name, row.key);
        if pairs.iter().all(|(k, _)| *k != key) {
            return Err(missing(row));
        }
    }
    for (key, value) in pairs {
        out.set(key, value);
    }
    Ok(())
}

fn missing(row: &Row) -> Error {
    let object = match row.hf {
        Hf::Paths([path, ..]) => format!("config.json `{path}`"),
        _ => format!("config.json for `{}`", row.key),
    };
    Error::mismatch(object, "a value", "nothing")
}

fn check_rope_type(arch: &Architecture, config: &Json) -> Result<()> {
    let found = rope_type(config)?;
    if found == ROPE_DEFAULT || arch.rope_types.contains(&found) {
        return Ok(());
    }
    let path = lookup_rope(config, &["rope_type", "type"]).map_or(String::new(), |(path, _)| path);
    let known: Vec<_> = [ROPE_DEFAULT].iter().chain(arch.rope_types).copied().collect();
    let expected = format!(
        "{}, as nothing else is supported for `{}`",
        known.join(", "),
        arch.name
    );
    Err(Error::mismatch(format!("config.json `{path}`"), expected, found))
}

fn check_fixed(arch: &Architecture, fixed: &Fixed, config: &Json) -> Result<()> {
    let mut absent = true;
    for path in fixed.hf {
        let Some(found) = lookup(config, path) else {
            continue;
        };
        absent = false;
        let text = found.to_string();
        if !fixed.is.contains(&text.as_str()) {
            let expected = format!(
                "{}, as nothing else is supported for `{}`",
                fixed.is.join(" or "),
                arch.name
            );
            return Err(wrong_type(path, &expected, found));
        }
    }
    if absent && !fixed.if_absent {
        let path = fixed.hf.first().copied().unwrap_or_default();
        return Err(Error::mismatch(
            format!("config.json `{path}`"),
            fixed.is.join(" or "),
            "nothing",
        ));
    }
    Ok(())
}

/// The value of a row, if the config has one.
fn value(arch: &Architecture, row: &Row, config: &Json) -> Result<Option<Value>> {
    let found = match row.hf {
        Hf::Paths(paths) => paths.iter().find_map(|p| {
            let path = format!("config.json `{p}`");
            Some((path, lookup(config, p)?.clone()))
        }),
        Hf::Rope {
            types,
            names,
            required,
        } => {
            let rope_type = rope_type(config)?;
            let found = lookup_rope(config, names).filter(|_| types.contains(&rope_type));
            if found.is_none() && required && types.contains(&rope_type) {
                let name = names.first().copied().unwrap_or_default();
                let object = format!("config.json `{name}` of the rotation");
                let expected = format!("a value, as its type is {rope_type}");
                return Err(Error::mismatch(object, expected, "nothing"));
            }
            found.map(|(path, found)| (format!("config.json `{path}`"), found.clone()))
        }
        Hf::Computed(of) => {
            let found = of(config)?;
            found.map(|found| (format!("config.json for `{}.{}`", arch.name, row.key), found))
        }
        Hf::Nowhere => None,
    };
    found
        .map(|(object, found)| typed(row.slot, &object, &found))
        .transpose()
}

/// A config's value as GGUF has it.
fn typed(slot: Slot, object: &str, found: &Json) -> Result<Value> {
    let number = || {
        found
            .as_f64()
            .ok_or_else(|| Error::mismatch(object, "a number", shortened(found)))
    };
    Ok(match slot {
        Slot::Count { min, max, .. } => {
            let number = whole_number(found).ok_or_else(|| {
                Error::mismatch(object, "a whole number that is not negative", shortened(found))
            })?;
            Value::U32(hparams::checked_count(object, number, min, max)?)
        }
        Slot::Float { max, .. } => Value::F32(hparams::checked_float(object, number()?, max)?),
        Slot::Finite { .. } => Value::F32(hparams::checked_finite(object, number()?)?),
        Slot::Flag { .. } => Value::Bool(
            found
                .as_bool()
                .ok_or_else(|| Error::mismatch(object, "true or false", shortened(found)))?,
        ),
        Slot::Gating { .. } => Value::U32(match found.as_str() {
            Some("softmax") => 1,
            Some("sigmoid") => 2,
            Some(SOFTMAX_OF_CHOSEN) => 3,
            Some("sqrtsoftplus") => 4,
            _ => {
                let expected = "softmax, sigmoid or sqrtsoftplus";
                return Err(Error::mismatch(object, expected, shortened(found)));
            }
        }),
        Slot::RopeScaling { .. } => {
            let scaling = match found.as_str() {
                // The factors of the others are in tensors.
                Some("default" | "none" | "llama3") => RopeScaling::None,
                Some("linear") => RopeScaling::Linear,
                Some("yarn") => RopeScaling::Yarn,
                Some("longrope" | "su") => RopeScaling::LongRope,
                _ => return Err(Error::mismatch(object, "a known type", shortened(found))),
            };
            Value::String(scaling.word().to_owned())
        }
        Slot::FileType => return Err(Error::mismatch(object, "no value", shortened(found))),
    })
}

/// What holds settings must be an object: those in anything else would count as absent.
fn check_parents(arch: &Architecture, config: &Json) -> Result<()> {
    let rows = hparams::written(arch).chain(arch.explicit.iter().copied().flatten());
    let paths = rows
        .filter_map(|row| match row.hf {
            Hf::Paths(paths) => Some(paths),
            _ => None,
        })
        .chain(arch.fixed.iter().map(|f| f.hf))
        .flatten();
    let parents = paths.filter_map(|path| path.rsplit_once('.').map(|(parent, _)| parent));
    for parent in ROPE_SETTINGS.iter().copied().chain(parents) {
        if let Some(found) = lookup(config, parent).filter(|v| !v.is_object()) {
            return Err(wrong_type(parent, "an object of settings, or null", found));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_config_lies_over_the_rest() {
        let merged =
            text_config(&json!({"a": 1, "b": 2, "text_config": {"b": 3, "c": 4}})).expect("an object");
        assert_eq!(
            (&merged["a"], &merged["b"], &merged["c"]),
            (&1.into(), &3.into(), &4.into())
        );
        let text = text_config(&json!({"text_config": [1]}))
            .expect_err("a list")
            .to_string();
        assert!(
            text.contains("`text_config`") && text.ends_with("found [1]"),
            "{text}"
        );
    }

    #[test]
    fn the_rotation_has_one_type_under_all_spellings() {
        for (config, expected) in [
            (json!({}), "default"),
            (json!({"rope_scaling": null}), "default"),
            (json!({"rope_scaling": {"type": "yarn"}}), "yarn"),
            (
                json!({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}),
                "llama3",
            ),
            (
                json!({"rope_parameters": {"full_attention": {"rope_type": "linear"}}}),
                "linear",
            ),
        ] {
            assert_eq!(rope_type(&config).expect("a type"), expected, "{config}");
        }
        let message = rope_type(&json!({"rope_scaling": {"factor": 2.0}})).expect_err("no type");
        assert!(
            message.to_string().contains("`rope_scaling.rope_type`"),
            "{message}"
        );
    }
}
