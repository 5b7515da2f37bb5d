//! ERNIE 4.5 with experts: neighbours of a head rotate, as the weights have it; a bias chooses experts; layers without
//! experts in front and, with an interval, between.

use serde_json::Value as Json;

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Cut, Fixed, Groups, Piece, Skip, TensorRule};
use crate::hparams::{self, Hf, Row};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, Moe, RopeKind};
use crate::{Error, HParams, Result, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "ernie4_5-moe",
    hf_classes: &["Ernie4_5_MoeForCausalLM"],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT, parts::SOFTMAX_NORM_EXPLICIT],
    fixed: &[hf::SILU, Fixed::to(&["use_bias"], &["false"])],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        parts::ATTENTION,
        parts::DENSE,
        EXPERTS,
        parts::ROUTER,
        parts::SHARED_EXPERTS,
        OWN_TENSORS,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[
    Row {
        hf: Hf::Paths(&["moe_num_experts"]),
        ..hparams::EXPERT_COUNT.required()
    },
    Row {
        hf: Hf::Paths(&["moe_k"]),
        ..hparams::EXPERT_USED_COUNT.required()
    },
    Row {
        hf: Hf::Paths(&["moe_layer_interval"]),
        ..hparams::INTERLEAVE_MOE_LAYER_STEP.required()
    },
    Row {
        hf: Hf::Paths(&["moe_layer_start_index"]),
        ..hparams::LEADING_DENSE_BLOCK_COUNT.required()
    },
    hparams::EXPERT_FEED_FORWARD_LENGTH.required(),
    Row {
        hf: Hf::Paths(&["moe_num_shared_experts"]),
        ..hparams::EXPERT_SHARED_COUNT
    },
    hparams::EXPERT_SHARED_FEED_FORWARD_LENGTH.computed(shared_width),
];

static EXPLICIT: &[Row] = &[hparams::ROPE_FREQ_BASE.computed(|_| Ok(Some(500_000.0.into())))];

/// As the reference computes it. In the models that exist it is the width of the shared experts together.
fn shared_width(config: &Json) -> Result<Option<Json>> {
    if hf::count(config, "moe_num_shared_experts")?.unwrap_or(0) == 0 {
        return Ok(None);
    }
    let (width, heads) = (
        hf::count(config, "intermediate_size")?,
        hf::count(config, "num_key_value_heads")?,
    );
    if let (Some(width), Some(heads @ 1..)) = (width, heads) {
        return Ok(Some((width / heads).into()));
    }
    let object = "config.json `intermediate_size` and `num_key_value_heads`";
    Err(Error::mismatch(
        object,
        "numbers above 0, as there are shared experts",
        "others",
    ))
}

/// The stacks of a layer, in the reference's order.
static EXPERTS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
        &[Piece::whole(Role::FfnGateExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
        &[Piece::whole(Role::FfnUpExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight",
        &[Piece::whole(Role::FfnDownExps)],
    ),
];

/// What older checkpoints have fused, and what belongs to further tokens.
static OWN_TENSORS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.mlp.moe_statics.e_score_correction_bias",
        &[Piece::whole(Role::ExpProbsB)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.qkv_proj.weight",
        &[
            Piece::whole(Role::AttnQ).rows(Cut::Groups(&[|h| Groups::span(0, h.n_embd_q())])),
            Piece::whole(Role::AttnK).rows(Cut::Groups(&[|h| Groups::span(h.n_embd_q(), h.n_embd_k())])),
            Piece::whole(Role::AttnV).rows(Cut::Groups(&[|h| {
                Groups::span(h.n_embd_q() + h.n_embd_k(), h.n_embd_v())
            }])),
        ],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.up_gate_proj.weight",
        &[
            Piece::whole(Role::FfnGate).rows(Cut::Half(0)),
            Piece::whole(Role::FfnUp).rows(Cut::Half(1)),
        ],
    ),
    TensorRule::skip("model.mtp_block.{rest}", Skip::Mtp),
    TensorRule::skip("model.mtp_emb_norm.{rest}", Skip::Mtp),
    TensorRule::skip("model.mtp_hidden_norm.{rest}", Skip::Mtp),
    TensorRule::skip("model.mtp_linear_proj.{rest}", Skip::Mtp),
];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Norm)),
        ..passes::gqa(h)
    };
    let experts = Moe {
        shared: passes::shared(h.n_ff_shexp),
        ..passes::moe(h, h.n_ff_exp)
    };
    passes::model(h, |il| {
        let ffn = if is_dense(h, il) {
            Ffn::Dense(passes::dense(h))
        } else {
            Ffn::Moe(experts)
        };
        passes::layer(h, Mixer::Gqa(attention), ffn)
    })
}

fn is_dense(h: &HParams, il: usize) -> bool {
    il < h.n_layer_dense || !(il + 1).is_multiple_of(h.moe_step.max(1))
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        if is_dense(h, il) {
            all.dense(il);
            continue;
        }
        all.experts(il, h.n_ff_exp);
        all.maybe(il, Role::ExpProbsB, &[h.n_expert, 1]);
        if h.n_ff_shexp > 0 {
            all.shared_experts(il, h.n_ff_shexp);
        }
    }
    all.done()
}
