//! Gemma 3, text: norms of query and key heads, five layers with a window to one without, and a rotation for each kind.

use super::gemma;
use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hparams::{self, Row};
use crate::spec::{Gqa, ModelSpec, Rope, RopeKind, Window};
use crate::{HParams, hf};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gemma3",
    hf_classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT],
    effects: passes::WINDOW_HEADS_EFFECTS,
    fixed: gemma::FIXED,
    rope_types: &["linear"],
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

/// Configs of wrapped models leave out what is as their class has it.
static OWN: &[Row] = &[
    hparams::CONTEXT_LENGTH.computed(|c| Ok(Some(gemma::or(c, "max_position_embeddings", 131_072)))),
    hparams::HEAD_COUNT.computed(|c| Ok(Some(gemma::or(c, "num_attention_heads", 8)))),
    hparams::HEAD_COUNT_KV.computed(|c| Ok(Some(gemma::or(c, "num_key_value_heads", 4)))),
    hparams::RMS_EPSILON.computed(|c| Ok(Some(gemma::or(c, "rms_norm_eps", 1e-6)))),
    hparams::KEY_LENGTH.computed(|c| Ok(Some(gemma::or(c, "head_dim", 256)))),
    hparams::VALUE_LENGTH.computed(|c| Ok(Some(gemma::or(c, "head_dim", 256)))),
    hparams::FINAL_LOGIT_SOFTCAPPING,
    hparams::SLIDING_WINDOW,
];

static EXPLICIT: &[Row] = &[
    hparams::ROPE_FREQ_BASE.computed(|_| Ok(Some(1e6.into()))),
    hparams::ROPE_FREQ_BASE_SWA.computed(|_| Ok(Some(1e4.into()))),
    hparams::ROPE_DIMENSION_COUNT.computed(|c| Ok(Some(gemma::or(c, "head_dim", 256)))),
    hparams::SLIDING_WINDOW_PATTERN.computed(|c| {
        hf::full_attention_period(c, &["sliding_window_pattern", "_sliding_window_pattern"], 6)
    }),
    gemma::ATTENTION_SCALE,
];

fn forward(h: &HParams) -> ModelSpec {
    // Layers with a window have a base of their own, and nothing scales their positions.
    let rope = passes::rope(h, RopeKind::Neox);
    let rope_swa = Rope {
        base: passes::or(h.rope_base_swa, 10_000.0),
        scale: 1.0,
        yarn: None,
        magnitude: 1.0,
        ..rope
    };
    gemma::forward(h, |il| {
        let window = passes::window(h, il, 6);
        Gqa {
            rope: Some(if window == Window::All { rope } else { rope_swa }),
            qk_norm: Some(passes::head_norm(h)),
            scale: gemma::attention_scale(h, 62),
            window,
            ..passes::gqa(h)
        }
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        gemma::layer(&mut all, il, h);
        all.qk_norm(il);
    }
    all.done()
}
