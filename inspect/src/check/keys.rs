//! Metadata keys that readers take in one type only, and values that should not be published.

use gguf::validate::Finding;
use gguf::{Metadata, Value, ValueType, key};

/// The type that llama.cpp reads a key in. It looks keys up with their exact type and refuses a model whose key has
/// another; where it takes one number or one a layer, arrays are not looked at here.
const TYPES: &[(&str, ValueType)] = &[
    (key::ARCHITECTURE, ValueType::String),
    (key::NAME, ValueType::String),
    (key::TYPE, ValueType::String),
    (key::FILE_TYPE, ValueType::U32),
    (key::QUANTIZATION_VERSION, ValueType::U32),
    (key::TOKENIZER_MODEL, ValueType::String),
    (key::TOKENIZER_PRE, ValueType::String),
    (key::CHAT_TEMPLATE, ValueType::String),
    ("tokenizer.ggml.bos_token_id", ValueType::U32),
    ("tokenizer.ggml.eos_token_id", ValueType::U32),
    ("tokenizer.ggml.eot_token_id", ValueType::U32),
    ("tokenizer.ggml.eom_token_id", ValueType::U32),
    ("tokenizer.ggml.unknown_token_id", ValueType::U32),
    ("tokenizer.ggml.seperator_token_id", ValueType::U32),
    ("tokenizer.ggml.padding_token_id", ValueType::U32),
    ("tokenizer.ggml.add_bos_token", ValueType::Bool),
    ("tokenizer.ggml.add_eos_token", ValueType::Bool),
    ("tokenizer.ggml.add_space_prefix", ValueType::Bool),
];

/// The same for keys that begin with the architecture and a dot.
const ARCH_TYPES: &[(&str, ValueType)] = &[
    ("block_count", ValueType::U32),
    ("context_length", ValueType::U32),
    ("embedding_length", ValueType::U32),
    ("vocab_size", ValueType::U32),
    ("feed_forward_length", ValueType::U32),
    ("expert_feed_forward_length", ValueType::U32),
    ("expert_shared_feed_forward_length", ValueType::U32),
    ("leading_dense_block_count", ValueType::U32),
    ("expert_count", ValueType::U32),
    ("expert_used_count", ValueType::U32),
    ("expert_shared_count", ValueType::U32),
    ("expert_group_count", ValueType::U32),
    ("expert_group_used_count", ValueType::U32),
    ("expert_weights_scale", ValueType::F32),
    ("expert_weights_norm", ValueType::Bool),
    ("expert_gating_func", ValueType::U32),
    ("nextn_predict_layers", ValueType::U32),
    ("logit_scale", ValueType::F32),
    ("attn_logit_softcapping", ValueType::F32),
    ("final_logit_softcapping", ValueType::F32),
    ("attention.head_count", ValueType::U32),
    ("attention.head_count_kv", ValueType::U32),
    ("attention.key_length", ValueType::U32),
    ("attention.value_length", ValueType::U32),
    ("attention.key_length_mla", ValueType::U32),
    ("attention.value_length_mla", ValueType::U32),
    ("attention.layer_norm_epsilon", ValueType::F32),
    ("attention.layer_norm_rms_epsilon", ValueType::F32),
    ("attention.q_lora_rank", ValueType::U32),
    ("attention.kv_lora_rank", ValueType::U32),
    ("attention.sliding_window", ValueType::U32),
    ("attention.scale", ValueType::F32),
    ("rope.dimension_count", ValueType::U32),
    ("rope.freq_base", ValueType::F32),
    ("rope.scaling.type", ValueType::String),
    ("rope.scaling.factor", ValueType::F32),
    ("rope.scaling.original_context_length", ValueType::U32),
    ("rope.scaling.yarn_log_multiplier", ValueType::F32),
];

/// Folders that a path of a person's machine begins with.
const PRIVATE: &[&str] = &[
    "/home/",
    "/root/",
    "/Users/",
    "/mnt/",
    "/media/",
    "/tmp/",
    "/data/",
    "/workspace/",
];

pub(super) fn check(metadata: &Metadata, findings: &mut Vec<Finding>) {
    let arch = match metadata.get(key::ARCHITECTURE) {
        Some(Value::String(arch)) => arch.as_str(),
        _ => "",
    };
    for (key, value) in metadata.iter() {
        let rest = key.strip_prefix(arch).and_then(|k| k.strip_prefix('.'));
        let expected = rest
            .and_then(|rest| expected_type(ARCH_TYPES, rest))
            .or_else(|| expected_type(TYPES, key));
        let found = value.value_type();
        if let Some(expected) = expected
            && found != expected
            && found != ValueType::Array
        {
            let what = format!("expected type {expected}, found {found}: llama.cpp refuses the model");
            findings.push(Finding::severe(
                object(key),
                None,
                what,
                "set the key again in that type",
            ));
        }
        if let Value::String(text) = value
            && key != key::CHAT_TEMPLATE
            && is_private(text)
        {
            let what = format!(
                "a path of somebody's machine stands in the file: `{}`",
                text.escape_debug()
            );
            findings.push(Finding::unusual(
                object(key),
                None,
                what,
                "set the key to the bare name before publishing",
            ));
        }
        if key == key::CHAT_TEMPLATE && matches!(value, Value::String(text) if text.trim().is_empty()) {
            let what = "the chat template is empty: programs fall back to one of their own";
            findings.push(Finding::unusual(
                object(key),
                None,
                what,
                "set the key from the model's template",
            ));
        }
    }
}

fn object(key: &str) -> String {
    format!("key `{key}`")
}

fn expected_type(table: &[(&str, ValueType)], key: &str) -> Option<ValueType> {
    table.iter().find(|(k, _)| *k == key).map(|&(_, t)| t)
}

/// Whether a value is one path and nothing else, on any system.
fn is_private(text: &str) -> bool {
    let windows =
        text.get(1..3).is_some_and(|s| s == ":\\") && text.starts_with(|c: char| c.is_ascii_alphabetic());
    let unix = PRIVATE.iter().any(|p| text.starts_with(p));
    (windows || unix) && !text.contains('\n')
}
