//! What an importance matrix was made with, against the model that is encoded.

use gguf::{GgufFile, Value};
use gguf_imatrix_format::{Origin, OriginModel};

use crate::fixture::*;
use crate::importance::UP;

/// A model whose router has gating function `gating`, if any, and whose norms begin at element `first`.
fn routed(gating: Option<u32>, norm: u64) -> Vec<u8> {
    let mut pairs: Vec<(String, Value)> = [
        ("block_count", 1_u32),
        ("context_length", 64),
        ("embedding_length", 256),
        ("feed_forward_length", 288),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 4),
        ("expert_count", 2),
        ("expert_used_count", 1),
        ("expert_feed_forward_length", 288),
        ("vocab_size", 64),
    ]
    .map(|(key, n)| (format!("glm4moe.{key}"), n.into()))
    .into();
    pairs.push(("general.architecture".to_owned(), "glm4moe".into()));
    pairs.push((
        "glm4moe.attention.layer_norm_rms_epsilon".to_owned(),
        Value::F32(1e-6),
    ));
    pairs.extend(gating.map(|n| ("glm4moe.expert_gating_func".to_owned(), n.into())));
    let pairs: Vec<(&str, Value)> = pairs.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    built(
        &pairs,
        &[
            ("blk.0.attn_norm.weight", &[norm]),
            ("blk.0.attn_v.weight", &[256, 32]),
            (UP, &[256, 288, 2]),
        ],
    )
}

#[test]
fn a_matrix_of_other_settings_or_another_model_is_told() {
    let f = Fixture::new();
    f.put("softmax.gguf", &routed(Some(1), 256));
    f.put("sigmoid.gguf", &routed(Some(2), 256));
    f.put("other.gguf", &routed(Some(2), 128));
    let made = |name: &str| {
        let identity = gguf_models::Identity::of(&GgufFile::open(&f.path(name)).unwrap()).unwrap();
        let mut m = imatrix(256);
        m.origin = Some(Origin {
            model: Some(OriginModel {
                architecture: identity.architecture,
                fingerprint: identity.fingerprint,
                settings: identity.settings,
            }),
            texts: vec![],
            tool: "test".to_owned(),
        });
        f.matrix("m", &m);
    };
    let key = "key `glm4moe.expert_gating_func` was 1 and is 2: make the matrix again";
    made("softmax.gguf");
    let text = f.succeeds("--imatrix m sigmoid.gguf o Q4_K_M --force");
    assert!(
        text.contains("warning: importance matrix `m` was made with other settings"),
        "{text}"
    );
    assert!(text.contains(key) && !text.contains("another model"), "{text}");
    f.refuses(
        "--strict --imatrix m sigmoid.gguf x Q4_K_M",
        1,
        &[key, "(`--strict`)"],
    );
    // What is set for the output counts.
    let put_right = "--override-kv glm4moe.expert_gating_func=int";
    f.refuses(
        &format!("--strict {put_right}:2 --imatrix m softmax.gguf x Q4_K_M"),
        1,
        &[key],
    );
    f.succeeds(&format!(
        "--strict {put_right}:1 --imatrix m sigmoid.gguf o Q4_K_M --force"
    ));
    // The same model says nothing, whatever its types.
    f.succeeds("softmax.gguf half.gguf BF16");
    for name in ["softmax.gguf", "half.gguf"] {
        let text = f.succeeds(&format!("--strict --imatrix m {name} o Q4_K_M --force"));
        assert!(!text.contains("was made with"), "{text}");
    }
    made("sigmoid.gguf");
    let text = f.succeeds("--imatrix m other.gguf o Q4_K_M --force");
    assert!(
        text.contains("another model of this architecture: its norms differ"),
        "{text}"
    );
    f.refuses("--strict --imatrix m other.gguf x Q4_K_M", 1, &["norms differ"]);
    f.refuses(
        "--strict --imatrix m in.gguf x Q4_K_M",
        1,
        &["expected architecture `llama`, found `glm4moe`"],
    );
}

/// The same model with the layer that predicts further tokens, or with latent attention in the other layout.
#[test]
fn a_fingerprint_looks_at_the_norms_of_the_model_itself() {
    let f = Fixture::new();
    let fingerprint = |extra: &[(&str, Value)], tensors: &[(&str, &[u64])]| {
        let mut pairs = vec![
            ("general.architecture", Value::from("deepseek2")),
            ("deepseek2.block_count", 1_u32.into()),
        ];
        for (key, value) in extra {
            pairs.retain(|(k, _)| k != key);
            pairs.push((*key, value.clone()));
        }
        let mut all: Vec<(&str, &[u64])> =
            vec![("output_norm.weight", &[64]), ("blk.0.attn_norm.weight", &[64])];
        all.extend(tensors);
        f.put("x.gguf", &built(&pairs, &all));
        let file = GgufFile::open(&f.path("x.gguf")).unwrap();
        gguf_models::Identity::of(&file).unwrap().fingerprint
    };
    let plain = fingerprint(&[], &[]);
    let apart: [(&str, &[u64]); 2] = [
        ("blk.0.attn_k_b.weight", &[32, 16, 4]),
        ("blk.0.attn_v_b.weight", &[32, 16, 4]),
    ];
    assert_eq!(fingerprint(&[], &apart), plain);
    assert_eq!(
        fingerprint(
            &[],
            &[
                ("blk.0.attn_kv_b.weight", &[32, 128]),
                ("output.weight", &[64, 8])
            ]
        ),
        plain
    );
    let nextn = [
        ("deepseek2.block_count", Value::U32(2)),
        ("deepseek2.nextn_predict_layers", Value::U32(1)),
    ];
    assert_eq!(fingerprint(&nextn, &[("blk.1.attn_norm.weight", &[64])]), plain);
    assert_ne!(
        fingerprint(&nextn[..1], &[("blk.1.attn_norm.weight", &[64])]),
        plain
    );
    assert_ne!(fingerprint(&[], &[("blk.0.ffn_norm.weight", &[64])]), plain);
}
