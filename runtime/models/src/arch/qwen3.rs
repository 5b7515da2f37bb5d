//! Qwen 3, dense: a norm of every query and key head.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Fixed};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, RopeKind};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen3",
    hf_classes: &["Qwen3ForCausalLM"],
    explicit: &[parts::ROPE_EXPLICIT],
    fixed: &[
        hf::SILU,
        hf::NO_SLIDING_WINDOW,
        Fixed::to(&["attention_bias"], &["false"]),
    ],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        parts::ATTENTION,
        parts::QK_NORM,
        parts::DENSE,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Neox)),
        qk_norm: Some(passes::head_norm(h)),
        ..passes::gqa(h)
    };
    passes::model(h, |_| {
        passes::layer(h, Mixer::Gqa(attention), Ffn::Dense(passes::dense(h)))
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.qk_norm(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        all.dense(il);
    }
    all.done()
}
