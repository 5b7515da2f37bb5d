//! The types of the format's well-known metadata keys.
//!
//! llama.cpp looks a key up with its exact type and refuses a model whose key has another. Where the architecture
//! may say one number or one a layer, both are taken.

use gguf::ValueType::{self, Bool, F32, I8, I32, String as Text, U8, U16, U32};
use gguf::{Metadata, Value, key};

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyType {
    /// One value of one of these types, the usual one first.
    One(&'static [ValueType]),
    /// An array of elements of one of these types, the usual one first.
    Array(&'static [ValueType]),
    /// One u32, or an array with one u32 or i32 for each layer.
    EachLayer,
    /// One u32, or an array with one bool, u32 or i32 for each layer.
    Pattern,
}

/// Elements of arrays with one number a layer.
const INTS: &[ValueType] = &[U32, I32];
const FLAGS: &[ValueType] = &[Bool, U32, I32];

const U: KeyType = KeyType::One(&[U32]);
const F: KeyType = KeyType::One(&[F32]);
const B: KeyType = KeyType::One(&[Bool]);
const S: KeyType = KeyType::One(&[Text]);
const I: KeyType = KeyType::One(&[I32]);

/// Keys and their types; `*` stands for any one part between dots, `{arch}` for the architecture's name.
static KEYS: &[(&str, KeyType)] = &[
    ("general.architecture", S),
    ("general.type", S),
    ("general.name", S),
    ("general.author", S),
    ("general.version", S),
    ("general.organization", S),
    ("general.finetune", S),
    ("general.basename", S),
    ("general.description", S),
    ("general.quantized_by", S),
    ("general.size_label", S),
    ("general.license", S),
    ("general.license.name", S),
    ("general.license.link", S),
    ("general.url", S),
    ("general.doi", S),
    ("general.uuid", S),
    ("general.repo_url", S),
    ("general.source.*", S),
    ("general.quantization_version", U),
    ("general.alignment", U),
    ("general.file_type", U),
    ("general.base_model.count", U),
    ("general.base_model.*.*", S),
    ("general.dataset.count", U),
    ("general.dataset.*.*", S),
    ("general.tags", KeyType::Array(&[Text])),
    ("general.languages", KeyType::Array(&[Text])),
    ("general.sampling.sequence", S),
    ("general.sampling.top_k", I),
    ("general.sampling.top_p", F),
    ("general.sampling.min_p", F),
    ("general.sampling.xtc_probability", F),
    ("general.sampling.xtc_threshold", F),
    ("general.sampling.temp", F),
    ("general.sampling.penalty_last_n", I),
    ("general.sampling.penalty_repeat", F),
    ("general.sampling.mirostat", I),
    ("general.sampling.mirostat_tau", F),
    ("general.sampling.mirostat_eta", F),
    ("general.tensor_extra.name", KeyType::Array(&[Text])),
    ("{arch}.vocab_size", U),
    ("{arch}.context_length", U),
    ("{arch}.embedding_length", U),
    ("{arch}.embedding_length_out", U),
    ("{arch}.block_count", U),
    ("{arch}.leading_dense_block_count", U),
    ("{arch}.feed_forward_length", KeyType::EachLayer),
    ("{arch}.expert_feed_forward_length", U),
    ("{arch}.expert_shared_feed_forward_length", U),
    ("{arch}.expert_chunk_feed_forward_length", U),
    ("{arch}.use_parallel_residual", B),
    ("{arch}.tensor_data_layout", S),
    ("{arch}.expert_count", U),
    ("{arch}.expert_used_count", U),
    ("{arch}.expert_shared_count", U),
    ("{arch}.expert_group_count", U),
    ("{arch}.expert_group_used_count", U),
    ("{arch}.expert_weights_scale", F),
    ("{arch}.expert_weights_norm", B),
    ("{arch}.expert_gating_func", U),
    ("{arch}.expert_group_scale", F),
    ("{arch}.experts_per_group", U),
    ("{arch}.moe_every_n_layers", U),
    ("{arch}.nextn_predict_layers", U),
    ("{arch}.pooling_type", U),
    ("{arch}.logit_scale", F),
    ("{arch}.attn_logit_softcapping", F),
    ("{arch}.router_logit_softcapping", F),
    ("{arch}.final_logit_softcapping", F),
    ("{arch}.residual_scale", F),
    ("{arch}.embedding_scale", F),
    ("{arch}.interleave_moe_layer_step", U),
    ("{arch}.decoder_start_token_id", U),
    ("{arch}.swiglu_clamp_exp", KeyType::Array(&[F32])),
    ("{arch}.swiglu_clamp_shexp", KeyType::Array(&[F32])),
    ("{arch}.attention.head_count", KeyType::EachLayer),
    ("{arch}.attention.head_count_kv", KeyType::EachLayer),
    ("{arch}.attention.max_alibi_bias", F),
    ("{arch}.attention.clamp_kqv", F),
    ("{arch}.attention.key_length", U),
    ("{arch}.attention.value_length", U),
    ("{arch}.attention.key_length_mla", U),
    ("{arch}.attention.value_length_mla", U),
    ("{arch}.attention.key_length_swa", U),
    ("{arch}.attention.value_length_swa", U),
    ("{arch}.attention.layer_norm_epsilon", F),
    ("{arch}.attention.layer_norm_rms_epsilon", F),
    ("{arch}.attention.group_norm_epsilon", F),
    ("{arch}.attention.group_norm_groups", U),
    ("{arch}.attention.causal", B),
    ("{arch}.attention.q_lora_rank", U),
    ("{arch}.attention.kv_lora_rank", U),
    ("{arch}.attention.relative_buckets_count", U),
    ("{arch}.attention.sliding_window", U),
    ("{arch}.attention.sliding_window_pattern", KeyType::Pattern),
    ("{arch}.attention.scale", F),
    ("{arch}.attention.output_scale", F),
    ("{arch}.attention.value_scale", F),
    ("{arch}.attention.temperature_length", U),
    ("{arch}.attention.temperature_scale", F),
    ("{arch}.attention.shared_kv_layers", U),
    ("{arch}.attention.indexer.head_count", U),
    ("{arch}.attention.indexer.key_length", U),
    ("{arch}.attention.indexer.top_k", U),
    ("{arch}.rope.dimension_count", U),
    ("{arch}.rope.dimension_count_swa", U),
    ("{arch}.rope.dimension_sections", KeyType::Array(INTS)),
    ("{arch}.rope.freq_base", F),
    ("{arch}.rope.freq_base_swa", F),
    ("{arch}.rope.scale_linear", F),
    ("{arch}.rope.scaling.type", S),
    ("{arch}.rope.scaling.factor", F),
    ("{arch}.rope.scaling.alpha", F),
    ("{arch}.rope.scaling.attn_factor", F),
    ("{arch}.rope.scaling.original_context_length", U),
    ("{arch}.rope.scaling.finetuned", B),
    ("{arch}.rope.scaling.yarn_log_multiplier", F),
    ("{arch}.rope.scaling.yarn_ext_factor", F),
    ("{arch}.rope.scaling.yarn_attn_factor", F),
    ("{arch}.rope.scaling.yarn_beta_fast", F),
    ("{arch}.rope.scaling.yarn_beta_slow", F),
    ("tokenizer.ggml.model", S),
    ("tokenizer.ggml.pre", S),
    ("tokenizer.ggml.tokens", KeyType::Array(&[Text])),
    ("tokenizer.ggml.scores", KeyType::Array(&[F32, I32])),
    ("tokenizer.ggml.token_type", KeyType::Array(&[I32, U32])),
    ("tokenizer.ggml.merges", KeyType::Array(&[Text])),
    ("tokenizer.ggml.bos_token_id", U),
    ("tokenizer.ggml.eos_token_id", U),
    ("tokenizer.ggml.eot_token_id", U),
    ("tokenizer.ggml.eom_token_id", U),
    ("tokenizer.ggml.unknown_token_id", U),
    ("tokenizer.ggml.seperator_token_id", U),
    ("tokenizer.ggml.padding_token_id", U),
    ("tokenizer.ggml.mask_token_id", U),
    ("tokenizer.ggml.fim_pre_token_id", U),
    ("tokenizer.ggml.fim_suf_token_id", U),
    ("tokenizer.ggml.fim_mid_token_id", U),
    ("tokenizer.ggml.fim_pad_token_id", U),
    ("tokenizer.ggml.fim_rep_token_id", U),
    ("tokenizer.ggml.fim_sep_token_id", U),
    ("tokenizer.ggml.prefix_token_id", U),
    ("tokenizer.ggml.suffix_token_id", U),
    ("tokenizer.ggml.middle_token_id", U),
    ("tokenizer.ggml.add_bos_token", B),
    ("tokenizer.ggml.add_eos_token", B),
    ("tokenizer.ggml.add_sep_token", B),
    ("tokenizer.ggml.add_space_prefix", B),
    ("tokenizer.ggml.remove_extra_whitespaces", B),
    ("tokenizer.ggml.precompiled_charsmap", KeyType::Array(&[U8, I8])),
    ("tokenizer.ggml.token_type_count", U),
    ("tokenizer.ggml.suppress_tokens", KeyType::Array(&[I32, U32])),
    ("tokenizer.ggml.normalizer.lowercase", B),
    ("tokenizer.ggml.normalizer.strip_accents", B),
    ("tokenizer.huggingface.json", S),
    ("tokenizer.chat_template", S),
    ("tokenizer.chat_template.*", S),
    ("tokenizer.chat_templates", KeyType::Array(&[Text])),
    ("split.no", KeyType::One(&[U16])),
    ("split.count", KeyType::One(&[U16])),
    ("split.tensors.count", I),
    ("quantize.imatrix.file", S),
    ("quantize.imatrix.dataset", S),
    ("quantize.imatrix.entries_count", KeyType::One(&[U32, I32])),
    ("quantize.imatrix.chunks_count", KeyType::One(&[U32, I32])),
];

impl KeyType {
    /// Whether a value has this type.
    pub fn fits(self, value: &Value) -> bool {
        let elements = match value {
            Value::Array(array) => Some(array.element_type()),
            _ => None,
        };
        let one = value.value_type();
        match (self, elements) {
            (Self::One(types), None) => types.contains(&one),
            (Self::Array(types), Some(element)) => types.contains(&element),
            (Self::EachLayer | Self::Pattern, None) => one == U32,
            (Self::EachLayer, Some(element)) => INTS.contains(&element),
            (Self::Pattern, Some(element)) => FLAGS.contains(&element),
            (Self::One(_), Some(_)) | (Self::Array(_), None) => false,
        }
    }
}

impl std::fmt::Display for KeyType {
    /// `u32`, `array of string`, `u32 or i32`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |types: &[ValueType]| types.iter().map(|t| t.name()).collect::<Vec<_>>().join(" or ");
        match self {
            Self::One(types) => f.write_str(&names(types)),
            Self::Array(types) => write!(f, "array of {}", names(types)),
            Self::EachLayer => f.write_str("u32, or an array of u32 or i32 with one number a layer"),
            Self::Pattern => f.write_str("u32, or an array of bool, u32 or i32 with one number a layer"),
        }
    }
}

/// The type of a well-known key in a file of this architecture; `None` for others.
pub fn type_of(key: &str, architecture: &str) -> Option<KeyType> {
    let own = || key.strip_prefix(architecture)?.strip_prefix('.');
    let own = if architecture.is_empty() { None } else { own() };
    KEYS.iter()
        .find(|(pattern, _)| match pattern.strip_prefix("{arch}.") {
            Some(rest) => own == Some(rest),
            None => matches(pattern, key),
        })
        .map(|&(_, kind)| kind)
}

/// The name of a file's architecture; empty where it has none.
pub fn architecture(metadata: &Metadata) -> &str {
    match metadata.get(key::ARCHITECTURE) {
        Some(Value::String(name)) => name,
        _ => "",
    }
}

fn matches(pattern: &str, key: &str) -> bool {
    if !pattern.contains('*') {
        return pattern == key;
    }
    let (mut pattern, mut key) = (pattern.split('.'), key.split('.'));
    loop {
        match (pattern.next(), key.next()) {
            (None, None) => return true,
            (Some(p), Some(k)) if p == "*" || p == k => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use gguf::Value;

    use super::{KEYS, type_of};

    #[test]
    fn no_key_stands_twice() {
        for (i, (key, _)) in KEYS.iter().enumerate() {
            assert!(KEYS[..i].iter().all(|(k, _)| k != key), "{key}");
        }
    }

    #[test]
    fn values_fit_by_type_alone() {
        let fits = |key, value: Value| type_of(key, "llama").map(|t| t.fits(&value));
        assert_eq!(fits("llama.block_count", 4_u32.into()), Some(true));
        assert_eq!(fits("llama.block_count", 4_u64.into()), Some(false));
        assert_eq!(fits("llama.block_count", vec![4_u32].into()), Some(false));
        assert_eq!(
            fits("llama.attention.head_count_kv", vec![4_i32].into()),
            Some(true)
        );
        assert_eq!(
            fits("llama.attention.head_count_kv", vec![4.0_f32].into()),
            Some(false)
        );
        assert_eq!(fits("general.base_model.0.name", "x".into()), Some(true));
        assert_eq!(fits("general.base_model.0.name", 1_u32.into()), Some(false));
        assert_eq!(fits("tokenizer.ggml.tokens", "x".into()), Some(false));
        assert_eq!(fits("qwen2.block_count", 4_u32.into()), None);
        assert_eq!(type_of(".block_count", ""), None);
    }
}
