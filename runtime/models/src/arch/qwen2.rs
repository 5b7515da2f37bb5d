//! Qwen 2 and 2.5, dense: biases of queries, keys and values.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, RopeKind};
use crate::{HParams, Role, hf};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen2",
    hf_classes: &["Qwen2ForCausalLM"],
    explicit: &[parts::ROPE_EXPLICIT],
    fixed: &[hf::SILU, hf::NO_SLIDING_WINDOW],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[parts::WHOLE_MODEL, parts::NORMS, parts::ATTENTION, parts::DENSE],
    forward,
    tensors,
    ..Architecture::BASE
};

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Neox)),
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
        all.qkv_bias(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        all.dense(il);
    }
    all.done()
}
