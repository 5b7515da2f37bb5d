//! The types that keys have: those of the format's table, and of its families for keys that the table lacks.

use gguf::{Metadata, ValueType, key};
use gguf_models::keys::{self, KeyType};

use super::value::Type;

/// Ends of keys that hold a fraction; other numbers of an architecture are whole.
const FRACTIONS: &[&str] = &[
    "_scale",
    ".scale",
    "_softcapping",
    "_bias",
    "_epsilon",
    "_factor",
    "_multiplier",
];

/// The type of a key, as far as its name tells.
pub(super) fn type_of(key: &str, metadata: &Metadata) -> Option<Type> {
    let architecture = keys::architecture(metadata);
    match keys::type_of(key, architecture) {
        Some(KeyType::One(types)) => return types.first().map(|&t| Type::one(t)),
        Some(KeyType::Array(types)) => return types.first().map(|&t| Type::array(t)),
        Some(_) => return Some(Type::one(ValueType::U32)),
        None => {}
    }
    if let Some(rest) = key.strip_prefix("general.") {
        // Settings of sampling are fractions, everything else about a model is text.
        let sampling = rest.starts_with("sampling.");
        return Some(Type::one(if sampling {
            ValueType::F32
        } else {
            ValueType::String
        }));
    }
    if key.starts_with("tokenizer.") {
        return key.ends_with("_token_id").then(|| Type::one(ValueType::U32));
    }
    if !metadata.contains(key::ARCHITECTURE) {
        return None;
    }
    let own = key.strip_prefix(architecture)?.strip_prefix('.')?;
    let fraction = FRACTIONS.iter().any(|end| own.ends_with(end));
    Some(Type::one(if fraction { ValueType::F32 } else { ValueType::U32 }))
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
