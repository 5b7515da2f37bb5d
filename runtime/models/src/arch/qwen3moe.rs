//! Qwen3-MoE: grouped-query attention with a norm of every query and key head, and experts in every layer.

use super::parts::{self, Expect};
use super::{Architecture, TensorExpectation};
use crate::effects::Neutral;
use crate::hf::{self, Fixed};
use crate::hparams::{self, Row};
use crate::spec::{Activation, Ffn, Gating, Gqa, LayerSpec, Mixer, ModelSpec, Moe, Norm, Rope, RopeKind};
use crate::{Error, HParams, Result, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen3moe",
    hf_classes: &["Qwen3MoeForCausalLM"],
    hparams: &[OWN],
    explicit: &[parts::ROPE_EXPLICIT, parts::SOFTMAX_NORM_EXPLICIT],
    // Always a softmax over all experts, and weights that are divided by their sum.
    effects: &[
        ("expert_gating_func", Neutral::One),
        ("expert_weights_norm", Neutral::One),
    ],
    fixed: &[
        hf::SILU,
        hf::NO_SLIDING_WINDOW,
        Fixed::to(&["norm_topk_prob"], &["true"]),
        Fixed::to(&["decoder_sparse_step"], &["1"]),
        Fixed::to(&["mlp_only_layers"], &["[]"]),
        Fixed::to(&["attention_bias"], &["false"]),
    ],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        parts::ATTENTION,
        parts::QK_NORM,
        parts::ROUTER,
        parts::EXPERTS,
    ],
    forward: Some(forward),
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[hparams::EXPERT_FEED_FORWARD_LENGTH.required()];

fn forward(h: &HParams) -> Result<ModelSpec> {
    if h.n_expert == 0 {
        return Err(Error::mismatch(
            "metadata key `qwen3moe.expert_count`",
            "at least 1",
            "nothing",
        ));
    }
    let norm = Norm { eps: h.rms_eps };
    let attention = Gqa {
        n_head: h.n_head,
        n_head_kv: h.n_head_kv,
        head_dim_k: h.head_dim_k,
        head_dim_v: h.head_dim_v,
        qk_norm: Some(norm),
        rope: Some(Rope {
            kind: RopeKind::Neox,
            n_rot: h.n_rot,
            base: h.rope_base,
        }),
        scale: 1.0 / (h.head_dim_k as f32).sqrt(),
    };
    let experts = Moe {
        n_expert: h.n_expert,
        n_used: h.n_expert_used,
        n_ff: h.n_ff_exp,
        gating: Gating::Softmax,
        norm_weights: true,
        weights_scale: h.expert_weights_scale,
        activation: Activation::Silu,
    };
    let layer = LayerSpec {
        norm_in: norm,
        mixer: Mixer::Gqa(attention),
        norm_mid: norm,
        ffn: Ffn::Moe(experts),
    };
    Ok(ModelSpec {
        n_embd: h.n_embd,
        n_vocab: h.n_vocab,
        n_ctx_train: h.n_ctx_train,
        layers: vec![layer; h.n_layer],
        norm_out: norm,
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.qk_norm(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        all.experts(il, h.n_ff_exp);
    }
    all.done()
}
