//! Granite with experts: Llama with factors of the embedding, of scores, of what a layer adds and of logits.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Cut, Fixed, Piece, TensorRule};
use crate::hparams::{self, Row, Slot};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, Moe, RopeKind};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "granitemoe",
    hf_classes: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
    hparams: &[OWN],
    explicit: &[parts::ROPE_EXPLICIT, parts::SOFTMAX_NORM_EXPLICIT],
    fixed: &[hf::SILU, Fixed::to(&["attention_bias"], &["false"])],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        parts::PERMUTED_ATTENTION,
        parts::ATTENTION,
        EXPERTS,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[
    hparams::VOCAB_SIZE,
    hparams::ROPE_DIMENSION_COUNT,
    hparams::ATTENTION_SCALE.from_paths(&["attention_multiplier"]),
    Row::paths(
        "embedding_scale",
        &["embedding_multiplier"],
        Slot::factor(|h| &mut h.embedding_scale),
    ),
    Row::paths(
        "residual_scale",
        &["residual_multiplier"],
        Slot::factor(|h| &mut h.residual_scale),
    ),
    Row::paths(
        "logit_scale",
        &["logits_scaling"],
        Slot::factor(|h| &mut h.logit_scale),
    ),
    hparams::EXPERT_SHARED_FEED_FORWARD_LENGTH.computed(|c| {
        let n_ff = hf::count(c, "shared_intermediate_size")?;
        Ok(n_ff.filter(|n| *n > 0).map(Into::into))
    }),
];

static EXPERTS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.block_sparse_moe.router.layer.weight",
        &[Piece::whole(Role::FfnGateInp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.block_sparse_moe.input_linear.weight",
        &[
            Piece::whole(Role::FfnGateExps).rows(Cut::Half(0)),
            Piece::whole(Role::FfnUpExps).rows(Cut::Half(1)),
        ],
    ),
    TensorRule::new(
        "model.layers.{layer}.block_sparse_moe.output_linear.weight",
        &[Piece::whole(Role::FfnDownExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.shared_mlp.input_linear.weight",
        &[
            Piece::whole(Role::FfnGateShexp).rows(Cut::Half(0)),
            Piece::whole(Role::FfnUpShexp).rows(Cut::Half(1)),
        ],
    ),
    TensorRule::new(
        "model.layers.{layer}.shared_mlp.output_linear.weight",
        &[Piece::whole(Role::FfnDownShexp)],
    ),
];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Norm)),
        ..passes::gqa(h)
    };
    let experts = Moe {
        shared: passes::shared(h.n_ff_shexp),
        ..passes::moe(h, h.n_ff)
    };
    ModelSpec {
        embedding_scale: passes::or(h.embedding_scale, 1.0),
        residual_scale: passes::or(h.residual_scale, 1.0),
        // The key has what logits are divided by.
        logit_scale: 1.0 / passes::or(h.logit_scale, 1.0),
        ..passes::model(h, |_| passes::layer(h, Mixer::Gqa(attention), Ffn::Moe(experts)))
    }
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        all.experts(il, h.n_ff);
        if h.n_ff_shexp > 0 {
            all.shared_experts(il, h.n_ff_shexp);
        }
    }
    all.done()
}
