//! Keys of an architecture that its forward pass does not use: which values of them change nothing.
//!
//! A key that is passed over in silence may stand for another model than the one that is computed: scaled
//! positions, a window of attention, capped logits. So every key of the architecture is either read by a row of its
//! own, or stands in a table here with the values under which the forward pass is what the description says, or is
//! one that every forward pass uses, or is refused. This concerns those who compute; converting, quantizing and
//! inspecting a model needs none of it.

use gguf::{Array, Metadata, Value};

use crate::arch::Architecture;
use crate::hparams;
use crate::{Error, Result};

/// The values of a key under which the description holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Neutral {
    /// All: the key says nothing of the forward pass, or only together with another that must be neutral.
    Any,
    /// 0, false, or an array of these.
    Zero,
    /// 1 or true.
    One,
    /// 1, or 0 for a setting that is not made.
    OneOrUnset,
    /// As [`Self::OneOrUnset`], but all where `rope.scaling.type` is `none`.
    RopeFactor,
}

/// A key without the architecture's name and dot in front, and its neutral values.
pub type Effect = (&'static str, Neutral);

/// The format's keys that not every forward pass uses. An architecture whose forward pass uses one has a row of its
/// own for it.
pub const GENERIC: &[Effect] = &[
    ("vocab_size", Neutral::Any),
    ("tensor_data_layout", Neutral::Any),
    ("pooling_type", Neutral::Any),
    ("decoder_start_token_id", Neutral::Any),
    ("embedding_length_out", Neutral::Zero),
    ("features_length", Neutral::Zero),
    ("leading_dense_block_count", Neutral::Zero),
    ("use_parallel_residual", Neutral::Zero),
    // Without tensors of shared or chunked experts their widths say nothing, and such tensors are refused.
    ("expert_shared_feed_forward_length", Neutral::Any),
    ("expert_chunk_feed_forward_length", Neutral::Any),
    ("expert_shared_count", Neutral::Zero),
    ("expert_group_scale", Neutral::OneOrUnset),
    ("experts_per_group", Neutral::Zero),
    ("moe_every_n_layers", Neutral::OneOrUnset),
    ("interleave_moe_layer_step", Neutral::OneOrUnset),
    ("logit_scale", Neutral::OneOrUnset),
    ("attn_logit_softcapping", Neutral::Zero),
    ("router_logit_softcapping", Neutral::Zero),
    ("final_logit_softcapping", Neutral::Zero),
    ("residual_scale", Neutral::OneOrUnset),
    ("embedding_scale", Neutral::OneOrUnset),
    ("swiglu_clamp_exp", Neutral::Zero),
    ("swiglu_clamp_shexp", Neutral::Zero),
    ("attention.max_alibi_bias", Neutral::Zero),
    ("attention.clamp_kqv", Neutral::Zero),
    // The other kind of norm; which one is used is the architecture's.
    ("attention.layer_norm_epsilon", Neutral::Any),
    ("attention.causal", Neutral::One),
    ("attention.q_lora_rank", Neutral::Zero),
    ("attention.kv_lora_rank", Neutral::Zero),
    ("attention.key_length_mla", Neutral::Zero),
    ("attention.value_length_mla", Neutral::Zero),
    ("attention.relative_buckets_count", Neutral::Zero),
    ("attention.sliding_window", Neutral::Zero),
    // These have no meaning without a window.
    ("attention.sliding_window_pattern", Neutral::Any),
    ("attention.key_length_swa", Neutral::Any),
    ("attention.value_length_swa", Neutral::Any),
    ("rope.freq_base_swa", Neutral::Any),
    ("rope.dimension_count_swa", Neutral::Any),
    ("attention.scale", Neutral::Zero),
    ("attention.output_scale", Neutral::OneOrUnset),
    ("attention.value_scale", Neutral::OneOrUnset),
    ("attention.temperature_length", Neutral::Zero),
    ("attention.temperature_scale", Neutral::Zero),
    ("attention.shared_kv_layers", Neutral::Zero),
    ("rope.dimension_sections", Neutral::Zero),
    ("rope.scale_linear", Neutral::RopeFactor),
    ("rope.scaling.attn_factor", Neutral::OneOrUnset),
    ("rope.scaling.yarn_log_multiplier", Neutral::Zero),
    // What only YaRN and its kin read.
    ("rope.scaling.alpha", Neutral::Any),
    ("rope.scaling.finetuned", Neutral::Any),
];

/// Checks that the forward pass of the architecture's description is the one that the metadata ask for.
///
/// # Errors
/// A key of the architecture with a value that changes the result and that the description has no place for,
/// and one that this build has no meaning for; the error names the key and its value.
pub fn check(arch: &Architecture, metadata: &Metadata) -> Result<()> {
    let unscaled = matches!(
        metadata.get(&format!("{}.rope.scaling.type", arch.name)),
        Some(Value::String(kind)) if kind == "none"
    );
    for (key, value) in metadata.iter() {
        let own = key.strip_prefix(arch.name).and_then(|k| k.strip_prefix('.'));
        let Some(own) = own else { continue };
        let find = |table: &[Effect]| table.iter().find(|(k, _)| *k == own).map(|(_, n)| *n);
        let expected = match find(arch.effects) {
            Some(neutral) => neutral,
            None if hparams::is_own(arch, own) => continue,
            None => match find(GENERIC) {
                Some(neutral) => neutral,
                None if hparams::read_by(arch).iter().any(|row| row.key == own) => continue,
                None => return Err(refusal(arch, key, "no such key", value)),
            },
        };
        if !expected.holds(value, unscaled) {
            return Err(refusal(arch, key, expected.words(), value));
        }
    }
    Ok(())
}

fn refusal(arch: &Architecture, key: &str, expected: &str, value: &Value) -> Error {
    let expected = format!(
        "{expected}, as this runtime cannot honour anything else for `{}`",
        arch.name
    );
    Error::mismatch(format!("metadata key `{key}`"), expected, shown(value))
}

impl Neutral {
    fn words(self) -> &'static str {
        match self {
            Self::Any => "anything",
            Self::Zero => "0",
            Self::One => "1",
            Self::OneOrUnset | Self::RopeFactor => "1 (or 0 for none)",
        }
    }

    fn holds(self, value: &Value, unscaled: bool) -> bool {
        let all = |neutral: fn(f64) -> bool| numbers(value).is_some_and(|v| v.into_iter().all(neutral));
        match self {
            Self::Any => true,
            Self::Zero => all(|v| v == 0.0),
            Self::One => all(|v| v == 1.0),
            Self::RopeFactor if unscaled => true,
            Self::OneOrUnset | Self::RopeFactor => all(|v| v == 0.0 || v == 1.0),
        }
    }
}

/// The number of a value, or those of an array; flags count as 0 and 1.
fn numbers(value: &Value) -> Option<Vec<f64>> {
    Some(match value {
        Value::F32(v) => vec![f64::from(*v)],
        Value::F64(v) => vec![*v],
        Value::Bool(v) => vec![f64::from(u8::from(*v))],
        Value::I8(v) => vec![f64::from(*v)],
        Value::I16(v) => vec![f64::from(*v)],
        Value::I32(v) => vec![f64::from(*v)],
        Value::I64(v) => vec![*v as f64],
        Value::Array(Array::F32(v)) => v.iter().map(|&x| f64::from(x)).collect(),
        Value::Array(Array::I32(v)) => v.iter().map(|&x| f64::from(x)).collect(),
        Value::Array(Array::Bool(v)) => v.iter().map(|&x| f64::from(u8::from(x))).collect(),
        Value::Array(array) => array.to_uints()?.into_iter().map(|x| x as f64).collect(),
        other => vec![other.to_uint()? as f64],
    })
}

/// A value for a message: numbers and short texts as they are, else the type.
fn shown(value: &Value) -> String {
    /// Characters of a text that are shown.
    const N_CHARS: usize = 64;
    match value {
        Value::String(s) => format!("`{}`", s.escape_debug().take(N_CHARS).collect::<String>()),
        Value::Array(_) => format!("an {}", value.type_name()),
        Value::U64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        // As the file has it: 0.1 is not 0.10000000149.
        Value::F32(v) => v.to_string(),
        scalar => numbers(scalar)
            .and_then(|v| v.first().copied())
            .map_or_else(|| value.type_name(), |v| v.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(pairs: &[(&str, Value)]) -> Result<()> {
        let arch = crate::arch::by_name("qwen3moe").expect("known");
        let mut metadata = Metadata::new();
        for (key, value) in pairs {
            metadata.set(format!("qwen3moe.{key}"), value.clone());
        }
        check(arch, &metadata)
    }

    #[test]
    fn what_changes_the_result_is_refused_by_key_and_value() {
        for (key, value, found) in [
            ("rope.scaling.attn_factor", Value::F32(0.1), "0.1"),
            ("rope.scale_linear", Value::F32(2.0), "2"),
            ("attention.sliding_window", Value::U32(4096), "4096"),
            ("attention.causal", Value::Bool(false), "false"),
            ("attention.scale", Value::F32(0.5), "0.5"),
            ("final_logit_softcapping", Value::F32(30.0), "30"),
            ("logit_scale", Value::F64(0.5), "0.5"),
            ("expert_gating_func", Value::U32(2), "2"),
            ("expert_weights_norm", Value::Bool(false), "false"),
            ("expert_shared_count", Value::I32(1), "1"),
            ("swiglu_clamp_exp", vec![0.0_f32, 7.0].into(), "an array of f32"),
            ("made.up", Value::U8(3), "3"),
        ] {
            let text = check_one(&[(key, value)]).expect_err(key).to_string();
            assert!(text.contains(&format!("`qwen3moe.{key}`")), "{text}");
            assert!(text.ends_with(&format!("found {found}")), "{text}");
            assert!(text.contains("cannot honour"), "{text}");
        }
    }

    #[test]
    fn what_changes_nothing_passes() {
        for (key, value) in [
            ("rope.scaling.type", Value::from("none")),
            ("rope.scaling.type", Value::from("yarn")),
            ("rope.scaling.attn_factor", Value::F32(1.0)),
            ("rope.scaling.original_context_length", Value::U32(4096)),
            ("rope.scale_linear", Value::F32(0.0)),
            ("attention.sliding_window", Value::U32(0)),
            ("expert_weights_scale", Value::F32(2.5)),
            ("expert_gating_func", Value::U32(1)),
            ("swiglu_clamp_exp", vec![0.0_f32, 0.0].into()),
            ("vocab_size", Value::U32(7)),
        ] {
            check_one(&[(key, value)]).expect(key);
        }
        let unscaled = [
            ("rope.scaling.type", Value::from("none")),
            ("rope.scaling.factor", Value::F32(4.0)),
        ];
        check_one(&unscaled).expect("without scaling the factor says nothing");
    }
}
