//! Caches of layers by hand.

use gguf::{Metadata, Value};
use gguf_blocks::registry;
use gguf_models::Attributes;

use super::cache::Cache;
use super::weights::Layer;
use super::{Run, product, sum};

fn run(n_ctx: u64, n_seq: u64, name: &str) -> Run {
    let format = registry::by_name(name).expect("a type");
    Run {
        n_ctx,
        n_batch: 2048,
        n_ubatch: 512,
        n_seq,
        type_k: format,
        type_v: format,
        flash_attn: true,
    }
}

/// The cache of `layers`, and what is left out.
fn cache(arch: &str, pairs: &[(&str, Value)], layers: &[Layer], run: &Run) -> (Cache, Vec<String>) {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", Value::from(arch));
    for (key, value) in pairs {
        metadata.set(format!("{arch}.{key}"), value.clone());
    }
    let a = Attributes::of(&metadata).expect("an architecture");
    let mut left_out = Vec::new();
    let cache = Cache::of(a, layers, run, &mut left_out).expect("small numbers");
    (cache, left_out)
}

const ATTENTION: Layer = Layer {
    seen: true,
    recurrent: false,
    keys: true,
    weights: 0,
    experts: 0,
};
const RECURRENT: Layer = Layer {
    recurrent: true,
    keys: false,
    ..ATTENTION
};

#[test]
fn heads_may_differ_between_layers_and_layers_may_share() {
    let pairs = [
        ("attention.head_count", Value::U32(8)),
        ("attention.head_count_kv", vec![4_u32, 0, 2, 2].into()),
        ("attention.key_length", Value::U32(64)),
        ("attention.value_length", Value::U32(32)),
        ("attention.shared_kv_layers", Value::U32(1)),
    ];
    let (cache, left_out) = cache("made-up", &pairs, &[ATTENTION; 4], &run(1000, 1, "f16"));
    assert_eq!(left_out, [""; 0]);
    let keys: Vec<u64> = cache.layers.iter().map(|l| l.keys).collect();
    assert_eq!(keys, [1024 * 4 * 64 * 2, 0, 1024 * 2 * 64 * 2, 0]);
    assert_eq!(cache.values * 2, cache.keys);
}

#[test]
fn layers_with_a_window_keep_the_window_and_a_ubatch() {
    let pairs = [
        ("attention.head_count_kv", Value::U32(1)),
        ("attention.key_length", Value::U32(256)),
        ("attention.value_length", Value::U32(256)),
        ("attention.sliding_window", Value::U32(1024)),
    ];
    let (found, _) = cache("gemma3", &pairs, &[ATTENTION; 6], &run(8192, 2, "q8_0"));
    let cells: Vec<u64> = found.layers.iter().map(|l| l.cells).collect();
    assert_eq!(cells, [3072, 3072, 3072, 3072, 3072, 8192]);
    assert_eq!(found.layers[5].keys, 8192 * 256 / 32 * 34);
    assert_eq!((found.cells, found.window_cells), (4096, Some(1536)));

    let (short, _) = cache("gemma3", &pairs, &[ATTENTION; 6], &run(512, 1, "f16"));
    assert!(
        short.layers.iter().all(|l| l.cells == 512),
        "no more than the context"
    );

    let (unknown, left_out) = cache("made-up", &pairs, &[ATTENTION; 2], &run(8192, 1, "f16"));
    assert!(unknown.layers.iter().all(|l| l.cells == 8192));
    assert!(left_out[0].contains("sliding_window_pattern"), "{left_out:?}");
}

#[test]
fn recurrent_layers_have_states_whatever_the_context() {
    let pairs = [
        ("attention.head_count", Value::U32(8)),
        ("attention.head_count_kv", Value::U32(2)),
        ("attention.key_length", Value::U32(128)),
        ("attention.value_length", Value::U32(128)),
        ("ssm.conv_kernel", Value::U32(4)),
        ("ssm.inner_size", Value::U32(2048)),
        ("ssm.state_size", Value::U32(128)),
        ("ssm.group_count", Value::U32(1)),
    ];
    let state = (3 * (2048 + 2 * 128) + 128 * 2048) * 4;
    for n_ctx in [256, 65_536] {
        let layers = [RECURRENT, ATTENTION];
        let (found, _) = cache("made-up", &pairs, &layers, &run(n_ctx, 3, "f16"));
        assert_eq!(found.states, state * 3);
        assert_eq!(found.layers[0].keys, 0);
        assert!(found.layers[1].keys > 0);
    }
    let both = Layer {
        keys: true,
        ..RECURRENT
    };
    let (found, _) = cache("made-up", &pairs, &[both], &run(256, 1, "f16"));
    assert!(found.layers[0].keys > 0 && found.layers[0].state == state);

    let (found, left_out) = cache("made-up", &pairs[..4], &[RECURRENT], &run(256, 1, "f16"));
    assert_eq!(found.total, 0);
    assert!(left_out[0].contains("made-up.ssm.state_size"), "{left_out:?}");
}

#[test]
fn layers_that_predict_further_tokens_keep_nothing() {
    let pairs = [
        ("attention.head_count_kv", Value::U32(1)),
        ("attention.key_length", Value::U32(32)),
        ("attention.value_length", Value::U32(32)),
        ("nextn_predict_layers", Value::U32(1)),
    ];
    let (found, _) = cache("made-up", &pairs, &[ATTENTION; 3], &run(256, 1, "f16"));
    let keys: Vec<bool> = found.layers.iter().map(|l| l.keys > 0).collect();
    assert_eq!(keys, [true, true, false]);
}

#[test]
fn lists_that_are_too_short_are_told_once() {
    let pairs = [
        ("attention.head_count_kv", vec![1_u32].into()),
        ("attention.key_length", Value::U32(32)),
        ("attention.value_length", Value::U32(32)),
    ];
    let (found, left_out) = cache("made-up", &pairs, &[ATTENTION; 9], &run(256, 1, "f16"));
    assert_eq!(found.keys, 256 * 32 * 2);
    assert_eq!(left_out.len(), 1, "{left_out:?}");
}

#[test]
fn what_does_not_fit_is_an_error() {
    assert!(product("x", &[1 << 33, 1 << 33]).is_err());
    assert!(sum("x", [u64::MAX, 1]).is_err());
}
