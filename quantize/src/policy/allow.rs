//! Which tensors are quantized at all. The others keep their type and their bytes.

use gguf::Shape;

/// Names with one of these in them are small, sensitive, or read by code that wants floats.
const KEPT_FRAGMENTS: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "attn_rel_b.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// Whole names that are kept.
const KEPT_NAMES: &[&str] = &["position_embd.weight", "token_types.weight"];

/// Further fragments that are kept for one architecture.
const KEPT_FOR_ARCH: &[(&str, &[&str])] = &[(
    "glm5-next",
    &[
        "hc_",
        "indexer.",
        "ssm_f",
        "ssm_g",
        "ssm_beta",
        "attn_kv_a_mqa",
        "attn_k_b",
        "attn_v_b",
    ],
)];

/// Whether a tensor is quantized.
pub(crate) fn is_quantized(arch: &str, name: &str, shape: &Shape) -> bool {
    let n_dims = shape.dims().iter().rposition(|&d| d != 1).map_or(0, |i| i + 1);
    let for_arch = KEPT_FOR_ARCH
        .iter()
        .filter(|(a, _)| *a == arch)
        .flat_map(|(_, f)| f.iter());
    n_dims >= 2
        && name.ends_with("weight")
        && !KEPT_NAMES.contains(&name)
        && !KEPT_FRAGMENTS.iter().chain(for_arch).any(|f| name.contains(f))
}
