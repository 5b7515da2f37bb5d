//! How a Hugging Face checkpoint becomes GGUF: config values and tensor names, all as data.

use gguf::{Metadata, Value};
use serde_json::Value as Json;

use crate::arch::Architecture;
use crate::hparams::{self, Row, Slot};
use crate::{Error, Result, Role};

/// A setting that the architecture's description takes for granted.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// Dotted paths in the config; every one that is there must have the value.
    pub hf: &'static [&'static str],
    /// The value as JSON text.
    pub is: &'static str,
    /// Whether an absent (or null) setting means this value.
    pub if_absent: bool,
}

/// The gate is `silu`.
pub const SILU: Fixed = Fixed {
    hf: &["hidden_act"],
    is: "\"silu\"",
    if_absent: true,
};

/// Plain rotary positions, no scaling of long contexts.
pub const NO_ROPE_SCALING: Fixed = Fixed {
    hf: &[
        "rope_scaling.rope_type",
        "rope_scaling.type",
        "rope_parameters.rope_type",
        "rope_parameters.type",
    ],
    is: "\"default\"",
    if_absent: true,
};

/// What happens to a checkpoint's tensor on its way to GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transform {
    /// Rows as they are.
    Copy,
    /// One matrix of a stack: the pattern's `{expert}` is its place. All stacks of a layer are written when
    /// the last of their experts has been seen, in the order of the rules.
    StackExperts,
    /// Each matrix is cut in half along its rows: the first half has the rule's role, the second this one.
    SplitRows {
        /// Role of the second half.
        second: Role,
    },
}

/// One kind of tensor of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct TensorRule {
    /// The name, with `{layer}` and `{expert}` for the numbers in it.
    pub pattern: &'static str,
    /// What it is (or what its stack is).
    pub role: Role,
    /// What happens to it.
    pub transform: Transform,
}

impl TensorRule {
    /// A rule.
    pub const fn new(pattern: &'static str, role: Role, transform: Transform) -> Self {
        Self {
            pattern,
            role,
            transform,
        }
    }

    const fn copy(pattern: &'static str, role: Role) -> Self {
        Self::new(pattern, role, Transform::Copy)
    }
}

/// Tensors outside layers.
pub const WHOLE_MODEL: &[TensorRule] = &[
    TensorRule::copy("model.embed_tokens.weight", Role::TokenEmbd),
    TensorRule::copy("model.norm.weight", Role::OutputNorm),
    TensorRule::copy("lm_head.weight", Role::Output),
];

/// Attention and the two norms of a layer, as Llama names them.
pub const LLAMA_ATTENTION: &[TensorRule] = &[
    TensorRule::copy("model.layers.{layer}.input_layernorm.weight", Role::AttnNorm),
    TensorRule::copy(
        "model.layers.{layer}.post_attention_layernorm.weight",
        Role::FfnNorm,
    ),
    TensorRule::copy("model.layers.{layer}.self_attn.q_proj.weight", Role::AttnQ),
    TensorRule::copy("model.layers.{layer}.self_attn.k_proj.weight", Role::AttnK),
    TensorRule::copy("model.layers.{layer}.self_attn.v_proj.weight", Role::AttnV),
    TensorRule::copy("model.layers.{layer}.self_attn.o_proj.weight", Role::AttnOutput),
];

/// Norms of query and key heads.
pub const QK_NORM: &[TensorRule] = &[
    TensorRule::copy("model.layers.{layer}.self_attn.q_norm.weight", Role::AttnQNorm),
    TensorRule::copy("model.layers.{layer}.self_attn.k_norm.weight", Role::AttnKNorm),
];

/// Endings of tensors that hold nothing of the model: buffers that are computed anew.
const IGNORED_ENDINGS: &[&str] = &[
    ".attention.masked_bias",
    ".attention.bias",
    ".rotary_emb.inv_freq",
];

/// A checkpoint's tensor name, understood.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    /// The rule that fits.
    pub rule: &'static TensorRule,
    /// The number in place of `{layer}`.
    pub layer: Option<usize>,
    /// The number in place of `{expert}`.
    pub expert: Option<usize>,
}

/// Whether a tensor of this name is left out of every model.
pub fn is_ignored(name: &str) -> bool {
    IGNORED_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Every rule of an architecture.
pub fn rules(arch: &Architecture) -> impl Iterator<Item = &'static TensorRule> {
    arch.hf_tensors.iter().copied().flatten()
}

/// The rule that fits a checkpoint's tensor name.
pub fn match_name(arch: &Architecture, name: &str) -> Option<Match> {
    let name = name.strip_prefix("language_model.").unwrap_or(name);
    rules(arch).find_map(|rule| match_pattern(rule, name))
}

fn match_pattern(rule: &'static TensorRule, name: &str) -> Option<Match> {
    let mut found = Match {
        rule,
        layer: None,
        expert: None,
    };
    let mut parts = name.split('.');
    for expected in rule.pattern.split('.') {
        let part = parts.next()?;
        match expected {
            "{layer}" => found.layer = Some(crate::names::plain_number(part)?),
            "{expert}" => found.expert = Some(crate::names::plain_number(part)?),
            literal if literal == part => {}
            _ => return None,
        }
    }
    parts.next().is_none().then_some(found)
}

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

/// Appends `{arch}.*` keys of a config (see [`text_config`]) to `out`, and `general.file_type` at the place
/// where the reference converter writes it.
///
/// # Errors
/// A required setting that is absent, a value of another type or out of range, and settings that the
/// architecture's description does not cover; each names the config path.
pub fn metadata(arch: &Architecture, config: &Json, file_type: u32, out: &mut Metadata) -> Result<()> {
    check_parents(arch, config)?;
    for fixed in arch.fixed {
        check_fixed(arch, fixed, config)?;
    }
    for row in hparams::generic_rows(arch) {
        write(arch, row, config, out)?;
    }
    out.set(gguf::key::FILE_TYPE, Value::U32(file_type));
    for row in hparams::own_rows(arch) {
        write(arch, row, config, out)?;
    }
    Ok(())
}

fn check_fixed(arch: &Architecture, fixed: &Fixed, config: &Json) -> Result<()> {
    let mut absent = true;
    for path in fixed.hf {
        let Some(found) = lookup(config, path) else {
            continue;
        };
        absent = false;
        let text = found.to_string();
        if text != fixed.is {
            return Err(Error::mismatch(
                format!("config.json `{path}`"),
                format!("{}, as nothing else is supported for `{}`", fixed.is, arch.name),
                text,
            ));
        }
    }
    if absent && !fixed.if_absent {
        let path = fixed.hf.first().copied().unwrap_or_default();
        return Err(Error::mismatch(
            format!("config.json `{path}`"),
            fixed.is,
            "nothing",
        ));
    }
    Ok(())
}

fn write(arch: &Architecture, row: &Row, config: &Json, out: &mut Metadata) -> Result<()> {
    let Some((path, found)) = row.hf.iter().find_map(|p| Some((p, lookup(config, p)?))) else {
        return match row.hf.first() {
            Some(path) if row.required => Err(Error::mismatch(
                format!("config.json `{path}`"),
                "a value",
                "nothing",
            )),
            _ => Ok(()),
        };
    };
    let object = format!("config.json `{path}`");
    let value = match row.slot {
        Slot::Count { max, .. } => {
            let number = whole_number(found)
                .ok_or_else(|| Error::mismatch(&object, "a whole number that is not negative", found))?;
            Value::U32(hparams::checked_count(&object, number, max)?)
        }
        Slot::Float { max, .. } => {
            let number = found
                .as_f64()
                .ok_or_else(|| Error::mismatch(&object, "a number", found))?;
            Value::F32(hparams::checked_float(&object, number, max)?)
        }
        Slot::Flag { .. } => Value::Bool(
            found
                .as_bool()
                .ok_or_else(|| Error::mismatch(&object, "true or false", found))?,
        ),
        Slot::Gating { .. } => Value::U32(match found.as_str() {
            Some("softmax") => 1,
            Some("sigmoid") => 2,
            Some("sqrtsoftplus") => 4,
            _ => {
                return Err(Error::mismatch(
                    &object,
                    "softmax, sigmoid or sqrtsoftplus",
                    found,
                ));
            }
        }),
    };
    out.set(format!("{}.{}", arch.name, row.key), value);
    Ok(())
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

fn wrong_type(path: &str, expected: &str, found: &Json) -> Error {
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

/// What holds settings must be an object: those in anything else would count as absent.
fn check_parents(arch: &Architecture, config: &Json) -> Result<()> {
    let rows = hparams::generic_rows(arch).chain(hparams::own_rows(arch));
    let paths = rows
        .flat_map(|row| row.hf)
        .chain(arch.fixed.iter().flat_map(|f| f.hf));
    for parent in paths
        .filter_map(|path| path.rsplit_once('.'))
        .map(|(parent, _)| parent)
    {
        if let Some(found) = lookup(config, parent).filter(|v| !v.is_object()) {
            return Err(wrong_type(parent, "an object of settings, or null", found));
        }
    }
    Ok(())
}

/// A number without fraction that is not negative; configs have both spellings, `32` and `32.0`.
pub fn whole_number(json: &Json) -> Option<u64> {
    let exact = |f: f64| (f >= 0.0 && f.fract() == 0.0 && f < 9e15).then_some(f as u64);
    json.as_u64().or_else(|| json.as_f64().and_then(exact))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch() -> &'static Architecture {
        crate::arch::by_name("qwen3moe").expect("known")
    }

    #[test]
    fn names_are_understood() {
        let m = match_name(arch(), "model.layers.12.mlp.experts.7.up_proj.weight").expect("known name");
        assert_eq!(
            (m.rule.role, m.layer, m.expert),
            (Role::FfnUpExps, Some(12), Some(7))
        );
        assert!(match_name(arch(), "language_model.model.norm.weight").is_some());
        for unknown in [
            "model.layers.x.mlp.gate.weight",
            "model.layers.01.mlp.gate.weight",
            "model.norm.weight.more",
            "model.norm",
            "",
        ] {
            assert!(match_name(arch(), unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn patterns_say_what_their_transform_needs() {
        for arch in crate::arch::all() {
            for rule in rules(arch) {
                assert_eq!(
                    rule.role.in_layer(),
                    rule.pattern.contains("{layer}"),
                    "{}",
                    rule.pattern
                );
                let stacked = rule.transform == Transform::StackExperts;
                assert_eq!(stacked, rule.pattern.contains("{expert}"), "{}", rule.pattern);
            }
        }
    }

    #[test]
    fn text_config_lies_over_the_rest() {
        let merged = text_config(&serde_json::json!({"a": 1, "b": 2, "text_config": {"b": 3, "c": 4}}))
            .expect("an object");
        assert_eq!(
            (&merged["a"], &merged["b"], &merged["c"]),
            (&1.into(), &3.into(), &4.into())
        );
        let text = text_config(&serde_json::json!({"text_config": [1]}))
            .expect_err("a list")
            .to_string();
        assert!(
            text.contains("`text_config`") && text.ends_with("found [1]"),
            "{text}"
        );
    }
}
