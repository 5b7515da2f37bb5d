//! `SmolLM3`: Llama with layers that have no positions, every fourth.

use super::parts::{self, Expect};
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Fixed};
use crate::hparams::{self, Row};
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
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[hparams::VOCAB_SIZE, hparams::ROPE_DIMENSION_COUNT];

static EXPLICIT: &[Row] = &[hparams::ROPE_FREQ_BASE.computed(|_| Ok(Some(2e6.into())))];

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        all.dense(il);
    }
    all.done()
}
