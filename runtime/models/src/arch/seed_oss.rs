//! Seed-OSS: Llama with biases of queries, keys and values, and halves of heads that rotate.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Fixed};
use crate::spec::{Ffn, Gqa, LayerSpec, Mixer, ModelSpec, RopeKind};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "seed_oss",
    hf_classes: &["SeedOssForCausalLM"],
    explicit: &[parts::ROPE_EXPLICIT],
    fixed: &[
        hf::SILU,
        Fixed::to(&["attention_out_bias"], &["false"]),
        Fixed::to(&["mlp_bias"], &["false"]),
    ],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::POST_ATTENTION_NORMS,
        parts::ATTENTION,
        parts::DENSE,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Neox)),
        ..passes::gqa(h)
    };
    passes::model(h, |_| LayerSpec {
        norm_mid_role: Role::PostAttnNorm,
        ..passes::layer(h, Mixer::Gqa(attention), Ffn::Dense(passes::dense(h)))
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.qkv_bias(il);
        all.add(il, Role::PostAttnNorm, &[h.n_embd]);
        all.dense(il);
    }
    all.done()
}
