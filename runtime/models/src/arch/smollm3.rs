//! `SmolLM3`: Llama with layers that have no positions, every fourth.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Fixed};
use crate::hparams::{self, Row};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, RopeKind};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "smollm3",
    hf_classes: &["SmolLM3ForCausalLM"],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT],
    fixed: &[
        hf::SILU,
        hf::NO_SLIDING_WINDOW,
        Fixed::to(&["no_rope_layer_interval"], &["4"]),
        Fixed::to(&["attention_bias"], &["false"]),
        Fixed::to(&["mlp_bias"], &["false"]),
    ],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        parts::PERMUTED_ATTENTION,
        parts::ATTENTION,
        parts::DENSE,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[hparams::VOCAB_SIZE, hparams::ROPE_DIMENSION_COUNT];

static EXPLICIT: &[Row] = &[hparams::ROPE_FREQ_BASE.computed(|_| Ok(Some(2e6.into())))];

fn forward(h: &HParams) -> ModelSpec {
    let rope = passes::rope(h, RopeKind::Norm);
    passes::model(h, |il| {
        let attention = Gqa {
            rope: (!is_without_positions(il)).then_some(rope),
            ..passes::gqa(h)
        };
        passes::layer(h, Mixer::Gqa(attention), Ffn::Dense(passes::dense(h)))
    })
}

/// Every fourth layer.
fn is_without_positions(il: usize) -> bool {
    (il + 1).is_multiple_of(4)
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        all.dense(il);
    }
    all.done()
}
