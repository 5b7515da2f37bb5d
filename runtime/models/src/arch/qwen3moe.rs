//! Qwen3-MoE: grouped-query attention with a norm of every query and key head, and experts in every layer.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::effects::Neutral;
use crate::hf::{self, Fixed};
use crate::hparams::{self, Row};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, RopeKind};
use crate::{HParams, Role};

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
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[hparams::EXPERT_FEED_FORWARD_LENGTH.required()];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        qk_norm: Some(passes::head_norm(h)),
        rope: Some(passes::rope(h, RopeKind::Neox)),
        ..passes::gqa(h)
    };
    let experts = passes::moe(h, h.n_ff_exp);
    passes::model(h, |_| passes::layer(h, Mixer::Gqa(attention), Ffn::Moe(experts)))
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
