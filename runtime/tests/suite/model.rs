//! Files that are no model of their architecture.

use crate::common::Tiny;
use gguf::{GgufFile, Value};
use gguf_runtime::{Model, Session, Settings, Token};

fn refuse(tiny: &Tiny) -> String {
    let e = Model::bind(tiny.file()).expect_err("a damaged model is refused");
    let text = e.to_string();
    assert!(!text.contains('\n') && !text.ends_with('.'), "{text}");
    text
}

#[test]
fn all_findings_come_in_one_message() {
    let mut tiny = Tiny::new();
    tiny.tensors
        .retain(|t| t.0 != "blk.1.attn_k.weight" && t.0 != "output_norm.weight");
    let up = tiny.tensor_mut("blk.0.ffn_up_exps.weight");
    up.1 = vec![32, 64, 5];
    let text = refuse(&tiny);
    for part in [
        "tiny.gguf",
        "qwen3moe",
        "blk.1.attn_k.weight",
        "output_norm.weight",
        "[64, 32, 5]",
        "[32, 64, 5]",
    ] {
        assert!(text.contains(part), "no {part} in: {text}");
    }
}

#[test]
fn tensors_without_a_use_are_not_ignored() {
    let mut tiny = Tiny::new();
    tiny.tensors
        .push(("blk.0.attn_q.bias".into(), vec![64], vec![0.5; 64]));
    assert!(refuse(&tiny).contains("blk.0.attn_q.bias"));
}

#[test]
fn data_that_is_cut_is_refused_before_it_is_used() {
    let bytes = Tiny::new().bytes();
    let n_data = 4096;
    for n in [1, n_data / 2, n_data] {
        let cut = bytes[..bytes.len() - n].to_vec();
        let file = GgufFile::from_source(gguf::source::bytes("cut.gguf".into(), cut)).unwrap();
        let text = Model::bind(file).unwrap_err().to_string();
        assert!(
            text.contains("cut.gguf") && text.contains("tensor"),
            "{n}: {text}"
        );
    }
}

#[test]
fn types_that_hold_no_weights_are_refused() {
    let tiny = Tiny::new();
    let mut bytes = tiny.bytes();
    let name = b"blk.0.attn_q.weight";
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len();
    // Behind the name: the number of dimensions, two dimensions, the type.
    let type_at = at + 4 + 2 * 8;
    assert_eq!(bytes[type_at..][..4], [0; 4]);
    for (type_id, part) in [(26u32, "I32"), (4242, "type 4242")] {
        bytes[type_at..][..4].copy_from_slice(&type_id.to_le_bytes());
        let source = gguf::source::bytes("odd.gguf".into(), bytes.clone());
        let text = Model::bind(GgufFile::from_source(source).unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("blk.0.attn_q.weight") && text.contains(part),
            "{text}"
        );
    }
}

#[test]
fn keys_are_checked() {
    let changed = |key: &str, value: Option<Value>| {
        let mut tiny = Tiny::new();
        match value {
            Some(v) => tiny.metadata.set(key, v),
            None => drop(tiny.metadata.remove(key)),
        }
        let text = refuse(&tiny);
        assert!(
            text.contains(key) || text.contains("unknown architecture"),
            "{key}: {text}"
        );
        assert!(text.starts_with("`tiny.gguf`: "), "{text}");
        text
    };
    changed("general.architecture", None);
    let unknown = changed("general.architecture", Some(Value::String("mamba9".into())));
    assert!(
        unknown.contains("mamba9") && unknown.contains("qwen3moe"),
        "{unknown}"
    );
    changed("qwen3moe.embedding_length", Some(Value::String("64".into())));
    changed("qwen3moe.embedding_length", None);
    changed("qwen3moe.block_count", Some(Value::U32(u32::MAX)));
    changed("qwen3moe.attention.head_count", Some(Value::U32(0)));
    changed("qwen3moe.attention.head_count_kv", Some(Value::U32(3)));
    changed("qwen3moe.expert_used_count", Some(Value::U32(6)));
    changed(
        "qwen3moe.attention.layer_norm_rms_epsilon",
        Some(Value::F32(f32::NAN)),
    );
    changed("qwen3moe.attention.sliding_window", Some(Value::U32(64)));
    changed("qwen3moe.logit_scale", Some(Value::F32(0.5)));
}

#[test]
fn layers_without_tensors_are_not_told_one_by_one() {
    let mut tiny = Tiny::new();
    tiny.metadata.set("qwen3moe.block_count", Value::U32(4096));
    let text = refuse(&tiny);
    assert!(text.contains("4096 layers: expected a tensor for each"), "{text}");
}

#[test]
fn odd_numbers_are_refused_or_run_but_never_panic() {
    let keys = [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
        "rope.dimension_count",
    ];
    let mut n_run = 0;
    for key in keys {
        for value in [0, 1, 2, 5, 8, 64, 1 << 20, u32::MAX] {
            let mut tiny = Tiny::new();
            tiny.metadata.set(format!("qwen3moe.{key}"), Value::U32(value));
            let Ok(model) = Model::bind(tiny.file()) else {
                continue;
            };
            let batch = [Token {
                id: 3,
                seq: 0,
                pos: 0,
                logits: true,
            }];
            let mut session = Session::new(
                &model,
                Settings {
                    n_ctx: 4,
                    ..Settings::default()
                },
            )
            .unwrap();
            assert_eq!(session.decode(&batch).unwrap().len(), tiny.n_vocab());
            n_run += 1;
        }
    }
    assert!(n_run > 5, "{n_run}");
}

#[test]
fn a_vocabulary_of_another_size_is_a_misfit() {
    let mut tiny = Tiny::new();
    let mut tokens = tiny
        .metadata
        .strings("tokenizer.ggml.tokens")
        .unwrap()
        .unwrap()
        .to_vec();
    tokens.pop();
    tiny.metadata.set("tokenizer.ggml.tokens", Value::from(tokens));
    assert!(refuse(&tiny).contains("token_embd.weight"));
}

#[test]
fn big_endian_files_are_refused() {
    // A file of the other byte order with nothing in it.
    let mut bytes = b"GGUF".to_vec();
    bytes.extend_from_slice(&3u32.to_be_bytes());
    bytes.extend_from_slice(&[0; 16]);
    let source = gguf::source::bytes("big.gguf".into(), bytes);
    let e = Model::bind(GgufFile::from_source(source).unwrap()).unwrap_err();
    assert!(e.to_string().contains("big-endian"), "{e}");
    assert!(e.to_string().contains("big-endian"), "{e}");
}
