//! The types that well-known keys have.

use gguf::{Metadata, Value, ValueType, key};

use super::value::Type;

/// Keys that do not have the usual type of their family, by how they end behind `general.`, `tokenizer.` or the
/// architecture. The first that fits counts.
const GENERAL: &[(&str, Type)] = &[
    ("quantization_version", Type::one(ValueType::U32)),
    ("alignment", Type::one(ValueType::U32)),
    ("file_type", Type::one(ValueType::U32)),
    (".count", Type::one(ValueType::U32)),
    ("tags", Type::array(ValueType::String)),
    ("languages", Type::array(ValueType::String)),
    ("datasets", Type::array(ValueType::String)),
    ("sampling.sequence", Type::one(ValueType::String)),
    ("sampling.top_k", Type::one(ValueType::I32)),
    ("sampling.penalty_last_n", Type::one(ValueType::I32)),
    ("sampling.mirostat", Type::one(ValueType::I32)),
];

const TOKENIZER: &[(&str, Type)] = &[
    ("_token_id", Type::one(ValueType::U32)),
    ("token_type_count", Type::one(ValueType::U32)),
    (".tokens", Type::array(ValueType::String)),
    (".merges", Type::array(ValueType::String)),
    (".scores", Type::array(ValueType::F32)),
    (".token_type", Type::array(ValueType::I32)),
    (".precompiled_charsmap", Type::array(ValueType::U8)),
    (".model", Type::one(ValueType::String)),
    (".pre", Type::one(ValueType::String)),
    (".json", Type::one(ValueType::String)),
    (".chat_templates", Type::array(ValueType::String)),
    ("_token", Type::one(ValueType::Bool)),
    ("_sep", Type::one(ValueType::Bool)),
    ("_prefix", Type::one(ValueType::Bool)),
    ("_whitespaces", Type::one(ValueType::Bool)),
];

const ARCHITECTURE: &[(&str, Type)] = &[
    ("use_parallel_residual", Type::one(ValueType::Bool)),
    ("expert_weights_norm", Type::one(ValueType::Bool)),
    ("causal", Type::one(ValueType::Bool)),
    ("scaling.finetuned", Type::one(ValueType::Bool)),
    ("tensor_data_layout", Type::one(ValueType::String)),
    ("scaling.type", Type::one(ValueType::String)),
    ("dimension_sections", Type::array(ValueType::I32)),
    ("scaling.original_context_length", Type::one(ValueType::U32)),
    ("rope.scaling.factor", Type::one(ValueType::F32)),
    ("rope.scale_linear", Type::one(ValueType::F32)),
    ("rope.freq_base", Type::one(ValueType::F32)),
    ("rope.freq_base_swa", Type::one(ValueType::F32)),
    ("swiglu_clamp_exp", Type::array(ValueType::F32)),
    ("swiglu_clamp_shexp", Type::array(ValueType::F32)),
    ("_softcapping", Type::one(ValueType::F32)),
    ("_scale", Type::one(ValueType::F32)),
    (".scale", Type::one(ValueType::F32)),
    ("_bias", Type::one(ValueType::F32)),
    ("_kqv", Type::one(ValueType::F32)),
    ("_epsilon", Type::one(ValueType::F32)),
    ("_factor", Type::one(ValueType::F32)),
    ("scaling.alpha", Type::one(ValueType::F32)),
    ("_multiplier", Type::one(ValueType::F32)),
    ("yarn_beta_fast", Type::one(ValueType::F32)),
    ("yarn_beta_slow", Type::one(ValueType::F32)),
];

/// The type of a well-known key.
pub(super) fn type_of(key: &str, metadata: &Metadata) -> Option<Type> {
    let find = |table: &[(&str, Type)]| {
        let known = table.iter().find(|(end, _)| key.ends_with(end));
        known.map(|(_, kind)| *kind)
    };
    if let Some(rest) = key.strip_prefix("general.") {
        // Other sampling settings are fractions, everything else about a model is text.
        let sampling = rest.starts_with("sampling.");
        let usual = Type::one(if sampling {
            ValueType::F32
        } else {
            ValueType::String
        });
        return Some(find(GENERAL).unwrap_or(usual));
    }
    if key == key::CHAT_TEMPLATE || key.starts_with("tokenizer.chat_template.") {
        return Some(Type::one(ValueType::String));
    }
    if key.starts_with("tokenizer.") {
        return find(TOKENIZER);
    }
    let Some(Value::String(architecture)) = metadata.get(key::ARCHITECTURE) else {
        return None;
    };
    key.strip_prefix(architecture.as_str())?.strip_prefix('.')?;
    Some(find(ARCHITECTURE).unwrap_or(Type::one(ValueType::U32)))
}

#[cfg(test)]
mod tests {
    use gguf::Metadata;

    use super::type_of;

    #[test]
    fn keys_have_the_types_that_readers_want() {
        let metadata: Metadata = [("general.architecture", "qwen3moe")].into_iter().collect();
        for (key, expected) in [
            ("general.name", "string"),
            ("general.file_type", "u32"),
            ("general.base_model.count", "u32"),
            ("general.base_model.0.name", "string"),
            ("general.tags", "arr[string]"),
            ("general.sampling.temp", "f32"),
            ("general.sampling.top_k", "i32"),
            ("tokenizer.chat_template", "string"),
            ("tokenizer.chat_template.tool_use", "string"),
            ("tokenizer.ggml.bos_token_id", "u32"),
            ("tokenizer.ggml.add_bos_token", "bool"),
            ("tokenizer.ggml.add_space_prefix", "bool"),
            ("tokenizer.ggml.token_type", "arr[i32]"),
            ("qwen3moe.context_length", "u32"),
            ("qwen3moe.rope.freq_base", "f32"),
            ("qwen3moe.rope.scaling.type", "string"),
            ("qwen3moe.rope.scaling.original_context_length", "u32"),
            ("qwen3moe.attention.layer_norm_rms_epsilon", "f32"),
            ("qwen3moe.attention.causal", "bool"),
            ("qwen3moe.expert_weights_scale", "f32"),
        ] {
            let found = type_of(key, &metadata).map(|t| t.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{key}");
        }
        assert_eq!(type_of("llama.context_length", &metadata), None);
        assert_eq!(type_of("my.key", &metadata), None);
    }
}
