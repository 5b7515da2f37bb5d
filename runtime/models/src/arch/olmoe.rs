//! `OLMoE`: norms over all query heads together and over all key heads, and experts in every layer.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Fixed};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, Moe, NormOver, QkNorm, RopeKind};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "olmoe",
    hf_classes: &["OlmoeForCausalLM"],
    explicit: &[parts::ROPE_EXPLICIT, parts::SOFTMAX_EXPLICIT],
    fixed: &[
        hf::SILU,
        Fixed::to(&["norm_topk_prob"], &["false"]),
        Fixed::to(&["attention_bias"], &["false"]),
        // Any bound is refused: an absent one is none.
        Fixed::to(&["clip_qkv"], &["null"]),
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

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Neox)),
        qk_norm: Some(QkNorm {
            over: NormOver::Heads,
            ..passes::head_norm(h)
        }),
        ..passes::gqa(h)
    };
    let experts = Moe {
        norm_weights: h.expert_weights_norm.unwrap_or(false),
        ..passes::moe(h, h.n_ff)
    };
    passes::model(h, |_| passes::layer(h, Mixer::Gqa(attention), Ffn::Moe(experts)))
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.add(il, Role::AttnQNorm, &[h.n_embd_q()]);
        all.add(il, Role::AttnKNorm, &[h.n_embd_k()]);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        all.experts(il, h.n_ff);
    }
    all.done()
}
