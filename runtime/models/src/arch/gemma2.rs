//! Gemma 2: caps on scores and logits, a window in every second layer.

use super::gemma;
use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hparams::{self, Row};
use crate::spec::{Gqa, ModelSpec, RopeKind};
use crate::{HParams, hf};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gemma2",
    hf_classes: &["Gemma2ForCausalLM"],
    generic: &[],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT],
    effects: passes::WINDOW_EFFECTS,
    fixed: gemma::FIXED,
    hf_tensors: &[
        gemma::TENSORS,
        parts::NORMS_FROM_ONE,
        parts::WHOLE_MODEL,
        parts::ATTENTION,
        parts::DENSE,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[
    hparams::CONTEXT_LENGTH,
    hparams::EMBEDDING_LENGTH,
    hparams::BLOCK_COUNT,
    hparams::FEED_FORWARD_LENGTH.required(),
    hparams::HEAD_COUNT,
    hparams::HEAD_COUNT_KV,
    hparams::RMS_EPSILON,
    hparams::KEY_LENGTH.computed(|c| Ok(Some(gemma::or(c, "head_dim", 256)))),
    hparams::VALUE_LENGTH.computed(|c| Ok(Some(gemma::or(c, "head_dim", 256)))),
    hparams::FILE_TYPE,
    hparams::ATTN_LOGIT_SOFTCAPPING,
    hparams::FINAL_LOGIT_SOFTCAPPING,
    hparams::SLIDING_WINDOW,
];

static EXPLICIT: &[Row] = &[
    hparams::ROPE_FREQ_BASE,
    hparams::SLIDING_WINDOW_PATTERN.computed(|c| hf::full_attention_period(c, &[], 2)),
    gemma::ATTENTION_SCALE,
];

fn forward(h: &HParams) -> ModelSpec {
    let rope = passes::rope(h, RopeKind::Neox);
    gemma::forward(h, |il| Gqa {
        rope: Some(rope),
        scale: gemma::attention_scale(h, 46),
        softcap: h.attn_softcap,
        window: passes::window(h, il, 2),
        ..passes::gqa(h)
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        gemma::layer(&mut all, il, h);
    }
    all.done()
}
