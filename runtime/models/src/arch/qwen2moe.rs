//! Qwen 1.5 and 2 with experts: biases of queries, keys and values, and a shared expert behind a gate of its own.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Fixed};
use crate::hparams::{self, Row};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, Moe, RopeKind, SharedExperts};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen2moe",
    hf_classes: &["Qwen2MoeForCausalLM"],
    hparams: &[OWN],
    explicit: &[parts::ROPE_EXPLICIT, parts::SOFTMAX_EXPLICIT],
    fixed: &[
        hf::SILU,
        hf::NO_SLIDING_WINDOW,
        Fixed::to(&["norm_topk_prob"], &["false"]),
        Fixed::to(&["decoder_sparse_step"], &["1"]),
        Fixed::to(&["mlp_only_layers"], &["[]"]),
    ],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        parts::ATTENTION,
        parts::ROUTER,
        parts::EXPERTS,
        parts::GATED_SHARED_EXPERT,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[
    hparams::EXPERT_FEED_FORWARD_LENGTH.required(),
    hparams::EXPERT_SHARED_FEED_FORWARD_LENGTH.required(),
];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Neox)),
        ..passes::gqa(h)
    };
    let experts = Moe {
        norm_weights: h.expert_weights_norm.unwrap_or(false),
        shared: passes::shared(h.n_ff_shexp).map(|s| SharedExperts { gated: true, ..s }),
        ..passes::moe(h, h.n_ff_exp)
    };
    passes::model(h, |_| passes::layer(h, Mixer::Gqa(attention), Ffn::Moe(experts)))
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.qkv_bias(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        all.experts(il, h.n_ff_exp);
        all.shared_experts(il, h.n_ff_shexp);
        all.add(il, Role::FfnGateInpShexp, &[h.n_embd, 1]);
    }
    all.done()
}
