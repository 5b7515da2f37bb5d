//! dots.llm1: attention of Qwen 3, and routing of `DeepSeek` V3 behind a few dense layers.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Fixed};
use crate::hparams::{self, Row};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, Moe, RopeKind};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "dots1",
    hf_classes: &["Dots1ForCausalLM"],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT],
    fixed: &[hf::SILU, Fixed::to(&["attention_bias"], &["false"])],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        parts::ATTENTION,
        parts::QK_NORM,
        parts::DENSE,
        parts::EXPERTS,
        parts::ROUTER,
        parts::SHARED_EXPERTS,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[
    hparams::EXPERT_FEED_FORWARD_LENGTH.required(),
    hparams::LEADING_DENSE_BLOCK_COUNT.required(),
    hparams::EXPERT_SHARED_COUNT,
    hparams::EXPERT_WEIGHTS_SCALE.required(),
    hparams::EXPERT_WEIGHTS_NORM.required(),
];

/// Checkpoints without the setting are the first ones, whose code has a sigmoid.
static EXPLICIT: &[Row] = &[hparams::EXPERT_GATING_FUNC.computed(|_| Ok(Some("sigmoid".into())))];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Neox)),
        qk_norm: Some(passes::head_norm(h)),
        ..passes::gqa(h)
    };
    let experts = Moe {
        norm_weights: h.expert_weights_norm.unwrap_or(false),
        shared: passes::shared(h.n_ff_exp * h.n_expert_shared),
        ..passes::moe(h, h.n_ff_exp)
    };
    passes::model(h, |il| {
        let ffn = if il < h.n_layer_dense {
            Ffn::Dense(passes::dense(h))
        } else {
            Ffn::Moe(experts)
        };
        passes::layer(h, Mixer::Gqa(attention), ffn)
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.qk_norm(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        if il < h.n_layer_dense {
            all.dense(il);
            continue;
        }
        all.experts(il, h.n_ff_exp);
        all.maybe(il, Role::ExpProbsB, &[h.n_expert]);
        if h.n_expert_shared > 0 {
            all.shared_experts(il, h.n_ff_exp * h.n_expert_shared);
        }
    }
    all.done()
}
