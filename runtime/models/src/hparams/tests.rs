//! Reading, defaults and refusals.

use gguf::{Array, Metadata, Value};

use super::*;

const TINY: &[(&str, Value)] = &[
    ("qwen3moe.block_count", Value::U32(3)),
    ("qwen3moe.context_length", Value::U32(2048)),
    ("qwen3moe.embedding_length", Value::U32(256)),
    ("qwen3moe.attention.head_count", Value::U32(4)),
    ("qwen3moe.attention.head_count_kv", Value::U32(2)),
    ("qwen3moe.attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
    ("qwen3moe.expert_count", Value::U32(8)),
    ("qwen3moe.expert_used_count", Value::U32(2)),
    ("qwen3moe.expert_feed_forward_length", Value::U32(128)),
    ("qwen3moe.vocab_size", Value::U32(512)),
];

fn with(changes: &[(&str, Option<Value>)]) -> Result<HParams> {
    let mut metadata = Metadata::new();
    for (key, value) in TINY {
        metadata.set(*key, value.clone());
    }
    for (key, value) in changes {
        let key = format!("qwen3moe.{key}");
        match value {
            Some(value) => metadata.set(key, value.clone()),
            None => drop(metadata.remove(&key)),
        }
    }
    HParams::from_gguf("qwen3moe", &metadata)
}

#[test]
fn absent_keys_have_the_defaults_of_the_reference() {
    let h = with(&[]).expect("sound");
    assert_eq!((h.n_layer, h.n_embd, h.n_vocab, h.n_ff_exp), (3, 256, 512, 128));
    assert_eq!((h.head_dim_k, h.head_dim_v, h.n_rot), (64, 64, 64));
    assert_eq!((h.rope_base, h.expert_weights_scale), (10_000.0, 1.0));
    let h = with(&[
        ("attention.head_count_kv", None),
        ("attention.key_length", Some(Value::U32(32))),
    ]);
    let h = h.expect("sound");
    assert_eq!(
        (h.n_head_kv, h.head_dim_k, h.head_dim_v, h.n_rot),
        (4, 32, 64, 32)
    );
}

#[test]
fn an_array_counts_where_all_layers_agree() {
    let heads = |v: Vec<u32>| with(&[("attention.head_count", Some(Value::Array(Array::U32(v))))]);
    assert_eq!(heads(vec![4, 4, 4]).expect("sound").n_head, 4);
    assert!(heads(vec![4, 2, 4]).is_err());
    assert!(heads(Vec::new()).is_err());
}

#[test]
fn unsound_values_are_refused_by_key() {
    let cases: &[(&str, Option<Value>)] = &[
        ("block_count", None),
        ("block_count", Some(Value::U32(0))),
        ("block_count", Some(Value::U32(u32::MAX))),
        ("block_count", Some(Value::String("3".into()))),
        ("embedding_length", Some(Value::U64(1 << 60))),
        ("attention.head_count", Some(Value::U32(0))),
        ("attention.head_count", Some(Value::U32(3))),
        ("attention.head_count_kv", Some(Value::U32(3))),
        ("attention.head_count_kv", Some(Value::I32(-1))),
        ("attention.key_length", Some(Value::U32(63))),
        ("attention.key_length", Some(Value::U32(1 << 24))),
        ("rope.dimension_count", Some(Value::U32(65))),
        ("rope.dimension_count", Some(Value::U32(128))),
        ("rope.freq_base", Some(Value::F32(f32::NAN))),
        ("rope.freq_base", Some(Value::F32(-1.0))),
        (
            "attention.layer_norm_rms_epsilon",
            Some(Value::F32(f32::INFINITY)),
        ),
        ("attention.layer_norm_rms_epsilon", Some(Value::F32(0.0))),
        ("expert_used_count", Some(Value::U32(9))),
        ("expert_used_count", None),
        ("expert_gating_func", Some(Value::U32(9))),
        ("vocab_size", None),
        ("vocab_size", Some(Value::U32(0))),
    ];
    for (key, value) in cases {
        let message = with(&[(key, value.clone())]).expect_err(key).to_string();
        // A head count that does not fit is named by either of the two keys.
        let named = key.strip_suffix("_kv").unwrap_or(key);
        let related =
            message.contains(named) || message.contains("rope.dimension_count") || message.contains("head");
        assert!(message.contains("qwen3moe.") && related, "{key}: {message}");
    }
}

#[test]
fn the_description_fits_the_hyper_parameters() {
    let h = with(&[]).expect("sound");
    let arch = crate::arch::by_name("qwen3moe").expect("known");
    let model = arch.model(&h).expect("sound");
    assert_eq!(model.layers.len(), 3);
    let tensors = (arch.tensors)(&h);
    assert_eq!(tensors.len(), 3 + 3 * 12);
    let down = tensors
        .iter()
        .find(|t| t.name() == "blk.2.ffn_down_exps.weight")
        .expect("there");
    assert_eq!(down.shape, [128, 256, 8]);
}

/// A model of another architecture with the same sizes.
fn of(arch: &str, more: &[(&str, Value)]) -> Result<crate::spec::ModelSpec> {
    let mut metadata = Metadata::new();
    for (key, value) in TINY {
        let own = key.strip_prefix("qwen3moe.").expect("a key of its own");
        metadata.set(format!("{arch}.{own}"), value.clone());
    }
    for (key, value) in more {
        metadata.set(format!("{arch}.{key}"), value.clone());
    }
    let h = HParams::from_gguf(arch, &metadata)?;
    crate::arch::by_name(arch).expect("known").model(&h)
}

#[test]
fn a_factor_without_a_type_scales_all_positions() {
    let factor = ("rope.scaling.factor", Some(Value::F32(4.0)));
    let none = ("rope.scaling.type", Some(Value::from("none")));
    assert_eq!(
        with(std::slice::from_ref(&factor)).expect("sound").rope_scaling,
        RopeScaling::Linear
    );
    assert_eq!(
        with(&[factor, none]).expect("sound").rope_scaling,
        RopeScaling::None
    );
}

#[test]
fn expert_groups_are_bounded_and_divide_the_experts() {
    for (n, n_expert) in [(512, 1024), (3, 8)] {
        let changes = [
            ("expert_count", Some(Value::U32(n_expert))),
            ("expert_group_count", Some(Value::U32(n))),
            ("expert_group_used_count", Some(Value::U32(2))),
        ];
        let message = with(&changes).expect_err("refused").to_string();
        assert!(message.contains("expert_group_count"), "{message}");
    }
}

#[test]
fn a_token_uses_a_bounded_number_of_experts() {
    let used = |n_expert, n_used| {
        with(&[
            ("expert_count", Some(Value::U32(n_expert))),
            ("expert_used_count", Some(Value::U32(n_used))),
        ])
    };
    let most = MAX_EXPERTS_USED as u32;
    for (n, n_used) in [(1 << 16, most), (most, most), (22, 22)] {
        assert!(used(n, n_used).is_ok(), "{n_used} of {n}");
    }
    for (n, n_used, expected) in [
        (1 << 16, 1 << 16, "1 to 512 of the 65536 experts"),
        (1 << 16, most + 1, "1 to 512"),
        (8, 9, "the expert count 8"),
    ] {
        let message = used(n, n_used).expect_err("refused").to_string();
        assert!(
            message.contains("qwen3moe.expert_used_count") && message.contains(expected),
            "{message}"
        );
    }
}

#[test]
fn the_state_of_recurrent_layers_is_bounded() {
    let state = |size: u32| {
        let sizes = [
            ("expert_shared_feed_forward_length", 64),
            ("full_attention_interval", 4),
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", size),
            ("ssm.group_count", 1),
            ("ssm.time_step_rank", 1),
            ("ssm.inner_size", 100_000),
        ];
        of("qwen3next", &sizes.map(|(key, n)| (key, Value::U32(n))))
    };
    for size in [128, MAX_STATE_SIZE as u32] {
        state(size).expect("sound");
    }
    // 40 GB of state for a file of 4 MB.
    let message = state(100_000).expect_err("refused").to_string();
    assert!(
        message.contains("qwen3next.ssm.state_size") && message.contains("found 100000"),
        "{message}"
    );
}

#[test]
fn routing_and_windows_are_those_of_the_keys() {
    use crate::spec::{Ffn, Gating, Mixer, Window};
    let gating = |arch: &str, func: Option<u32>| {
        let mut more = vec![("attention.sliding_window", Value::U32(16))];
        more.extend(func.map(|f| ("expert_gating_func", Value::U32(f))));
        match of(arch, &more).expect("sound").layers[1].ffn {
            Ffn::Moe(moe) => moe.gating,
            Ffn::Dense(_) => panic!("{arch} has experts"),
        }
    };
    assert_eq!(gating("gpt-oss", None), Gating::SoftmaxOfChosen);
    assert_eq!(gating("gpt-oss", Some(2)), Gating::Sigmoid);
    assert_eq!(gating("glm4moe", None), Gating::Sigmoid);
    assert_eq!(gating("glm4moe", Some(1)), Gating::Softmax);
    let windows = |period: Option<u32>| -> Vec<Window> {
        let mut more = vec![
            ("attention.sliding_window", Value::U32(16)),
            ("feed_forward_length", Value::U32(64)),
        ];
        more.extend(period.map(|p| ("attention.sliding_window_pattern", Value::U32(p))));
        let layers = of("gemma2", &more).expect("sound").layers;
        let window = |mixer| match mixer {
            Mixer::Gqa(g) => g.window,
            _ => Window::All,
        };
        layers.iter().map(|l| window(l.mixer)).collect()
    };
    let (near, all) = (Window::Last(16), Window::All);
    assert_eq!(windows(None), [near, all, near]);
    assert_eq!(windows(Some(3)), [near, near, all]);
    assert_eq!(windows(Some(0)), [near; 3]);
}
