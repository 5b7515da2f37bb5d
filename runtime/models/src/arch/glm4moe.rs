//! GLM-4.5 to 4.7: rotation of half a head, biases of queries, keys and values, dense layers, then experts that a
//! sigmoid scores.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, Mtp, TensorExpectation};
use crate::hf;
use crate::hparams::{self, Row};
use crate::spec::{Ffn, Gating, Gqa, LayerSpec, Mixer, ModelSpec, Moe, QkNorm, QkNormWeights, RopeKind};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "glm4moe",
    hf_classes: &["Glm4MoeForCausalLM"],
    hparams: &[OWN],
    explicit: &[parts::ROPE_EXPLICIT],
    fixed: &[hf::SILU],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::POST_ATTENTION_NORMS,
        parts::ATTENTION,
        parts::QK_NORM,
        parts::DENSE,
        parts::ROUTER,
        parts::EXPERTS,
        parts::SHARED_EXPERTS,
        parts::NEXTN,
    ],
    mtp: |_| Mtp::Kept,
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[
    hparams::BLOCK_COUNT.computed(parts::blocks_with_nextn),
    hparams::ROPE_DIMENSION_COUNT.computed(|c| hf::rotated_or(c, 0.5)),
    hparams::EXPERT_FEED_FORWARD_LENGTH.required(),
    hparams::EXPERT_SHARED_COUNT,
    hparams::LEADING_DENSE_BLOCK_COUNT,
    hparams::EXPERT_GATING_FUNC.computed(|_| Ok(Some("sigmoid".into()))),
    hparams::EXPERT_WEIGHTS_SCALE.computed(|c| {
        Ok(Some(
            hf::number(c, "routed_scaling_factor")?.unwrap_or(1.0).into(),
        ))
    }),
    hparams::EXPERT_WEIGHTS_NORM
        .computed(|c| Ok(Some(hf::flag(c, "norm_topk_prob")?.unwrap_or(true).into()))),
    hparams::NEXTN_PREDICT_LAYERS,
];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Neox)),
        qk_norm: Some(QkNorm {
            weights: QkNormWeights::IfPresent,
            ..passes::head_norm(h)
        }),
        ..passes::gqa(h)
    };
    let experts = Moe {
        norm_weights: h.expert_weights_norm.unwrap_or(false),
        shared: passes::shared(h.n_ff_exp * h.n_expert_shared),
        ..passes::moe_scored_by(h, h.n_ff_exp, Gating::Sigmoid)
    };
    passes::model(h, |il| {
        let ffn = if il < h.n_layer_dense {
            Ffn::Dense(passes::dense(h))
        } else {
            Ffn::Moe(experts)
        };
        LayerSpec {
            norm_mid_role: Role::PostAttnNorm,
            ..passes::layer(h, Mixer::Gqa(attention), ffn)
        }
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.maybe_bias(il, Role::AttnQ, &[h.n_embd_q()]);
        all.maybe_bias(il, Role::AttnK, &[h.n_embd_k()]);
        all.maybe_bias(il, Role::AttnV, &[h.n_embd_v()]);
        all.maybe(il, Role::AttnQNorm, &[h.head_dim_k]);
        all.maybe(il, Role::AttnKNorm, &[h.head_dim_k]);
        all.add(il, Role::PostAttnNorm, &[h.n_embd]);
        if il < h.n_layer_dense {
            all.dense(il);
        } else {
            all.experts(il, h.n_ff_exp);
            all.add(il, Role::ExpProbsB, &[h.n_expert]);
            if h.n_expert_shared > 0 {
                all.shared_experts(il, h.n_ff_exp * h.n_expert_shared);
            }
        }
        if il >= h.n_layer_main() {
            all.nextn(il);
        }
    }
    all.done()
}
