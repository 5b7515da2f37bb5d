//! MiniMax-M2: rotation of a part of each head, norms over all query and all key heads together, experts that a sigmoid
//! scores.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Fixed, Piece, TensorRule};
use crate::hparams::{self, Row};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, NormOver, QkNorm, RopeKind};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "minimax-m2",
    hf_classes: &["MiniMaxM2ForCausalLM"],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT],
    fixed: &[
        hf::SILU,
        Fixed::to(&["use_qk_norm"], &["true"]),
        Fixed::to(&["qk_norm_type"], &["\"per_layer\""]),
        Fixed::to(&["use_routing_bias"], &["true"]),
    ],
    rope_types: &[],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        parts::ATTENTION,
        parts::QK_NORM,
        parts::MIXTRAL_EXPERTS,
        BIAS,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[
    hparams::EXPERT_FEED_FORWARD_LENGTH
        .from_paths(&["intermediate_size"])
        .required(),
    hparams::ROPE_DIMENSION_COUNT.from_paths(&["rotary_dim"]),
];

static EXPLICIT: &[Row] = &[
    hparams::ROPE_FREQ_BASE.computed(|_| Ok(Some(5e6.into()))),
    hparams::EXPERT_GATING_FUNC.computed(|_| Ok(Some("sigmoid".into()))),
    hparams::EXPERT_WEIGHTS_NORM.computed(|_| Ok(Some(true.into()))),
    hparams::EXPERT_WEIGHTS_SCALE.computed(|_| Ok(Some(1.0.into()))),
];

static BIAS: &[TensorRule] = &[TensorRule::new(
    "model.layers.{layer}.block_sparse_moe.e_score_correction_bias",
    &[Piece::whole(Role::ExpProbsB)],
)];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Neox)),
        qk_norm: Some(QkNorm {
            over: NormOver::Heads,
            ..passes::head_norm(h)
        }),
        ..passes::gqa(h)
    };
    let experts = passes::moe(h, h.n_ff_exp);
    passes::model(h, |_| passes::layer(h, Mixer::Gqa(attention), Ffn::Moe(experts)))
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.add(il, Role::AttnQNorm, &[h.n_embd_q()]);
        all.add(il, Role::AttnKNorm, &[h.n_embd_k()]);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        all.experts(il, h.n_ff_exp);
        all.add(il, Role::ExpProbsB, &[h.n_expert]);
    }
    all.done()
}
