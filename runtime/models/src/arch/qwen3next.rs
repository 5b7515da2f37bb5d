//! Qwen3-Next: three layers of a gated delta net to one of attention, whose output has a gate; experts as in Qwen 2.

use serde_json::Value as Json;

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Cut, Fixed, Groups, Op, Piece, Skip, TensorRule};
use crate::hparams::{self, Hf, Row, Slot};
use crate::spec::{DeltaNet, Ffn, Gqa, LayerSpec, Mixer, ModelSpec, Moe, RopeKind, SharedExperts};
use crate::{Error, HParams, Result, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen3next",
    hf_classes: &["Qwen3NextForCausalLM"],
    hparams: &[OWN],
    explicit: &[parts::ROPE_EXPLICIT, parts::SOFTMAX_NORM_EXPLICIT],
    fixed: &[
        hf::SILU,
        Fixed::to(&["norm_topk_prob"], &["true"]),
        Fixed::to(&["decoder_sparse_step"], &["1"]),
        Fixed::to(&["mlp_only_layers"], &["[]"]),
        Fixed::to(&["attention_bias"], &["false"]),
    ],
    rope_types: &["linear", "yarn"],
    hf_tensors: &[
        OWN_TENSORS,
        parts::NORMS_FROM_ONE,
        parts::WHOLE_MODEL,
        parts::ATTENTION,
        parts::ROUTER,
        parts::EXPERTS,
        parts::GATED_SHARED_EXPERT,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[
    hparams::EXPERT_FEED_FORWARD_LENGTH.required(),
    hparams::EXPERT_SHARED_FEED_FORWARD_LENGTH.required(),
    Row::paths(
        "ssm.conv_kernel",
        &["linear_conv_kernel_dim"],
        Slot::width(|h| &mut h.ssm_conv_kernel),
    )
    .required(),
    Row::paths(
        "ssm.state_size",
        &["linear_key_head_dim"],
        Slot::width(|h| &mut h.ssm_state_size),
    )
    .required(),
    Row::paths(
        "ssm.group_count",
        &["linear_num_key_heads"],
        Slot::heads(|h| &mut h.ssm_group_count),
    )
    .required(),
    Row::paths(
        "ssm.time_step_rank",
        &["linear_num_value_heads"],
        Slot::heads(|h| &mut h.ssm_time_step_rank),
    )
    .required(),
    Row::new(
        "ssm.inner_size",
        Hf::Computed(inner_size),
        Slot::width(|h| &mut h.ssm_inner_size),
    )
    .required(),
    Row::new(
        "full_attention_interval",
        Hf::Computed(|c| hf::full_attention_period(c, &["full_attention_interval"], 4)),
        Slot::some_layers(|h| &mut h.full_attention_period),
    ),
    hparams::ROPE_DIMENSION_COUNT,
];

/// Elements of all value heads of the delta net together.
fn inner_size(config: &Json) -> Result<Option<Json>> {
    let dim = hf::count(config, "linear_value_head_dim")?;
    let heads = hf::count(config, "linear_num_value_heads")?;
    let product = dim.zip(heads).and_then(|(dim, heads)| dim.checked_mul(heads));
    product.map(|n| Some(n.into())).ok_or_else(|| {
        let object = "config.json `linear_value_head_dim` and `linear_num_value_heads`";
        Error::mismatch(object, "numbers", "others")
    })
}

/// Elements of the value heads that share a key head.
fn values_of_key(h: &HParams) -> usize {
    h.ssm_inner_size / h.ssm_group_count.max(1)
}

/// A part of what `in_proj_qkvz` has for each key head: query, key, values, gates of values.
fn part(h: &HParams, first: usize, len: usize) -> Groups {
    Groups {
        first,
        len,
        step: 2 * h.ssm_state_size + 2 * values_of_key(h),
        n: h.ssm_group_count,
    }
}

static OWN_TENSORS: &[TensorRule] = &[
    TensorRule::skip("mtp.{rest}", Skip::Mtp),
    // All queries, then all keys, then all values; the gates apart.
    TensorRule::new(
        "model.layers.{layer}.linear_attn.in_proj_qkvz.weight",
        &[
            Piece::whole(Role::AttnQkv).rows(Cut::Groups(&[
                |h| part(h, 0, h.ssm_state_size),
                |h| part(h, h.ssm_state_size, h.ssm_state_size),
                |h| part(h, 2 * h.ssm_state_size, values_of_key(h)),
            ])),
            Piece::whole(Role::AttnGate).rows(Cut::Groups(&[|h| {
                part(h, 2 * h.ssm_state_size + values_of_key(h), values_of_key(h))
            }])),
        ],
    ),
    TensorRule::new(
        "model.layers.{layer}.linear_attn.in_proj_ba.weight",
        &[Piece::whole(Role::SsmBetaAlpha)],
    ),
    TensorRule::new(
        "model.layers.{layer}.linear_attn.conv1d.weight",
        &[Piece::whole(Role::SsmConv1d).squeezed()],
    ),
    TensorRule::new(
        "model.layers.{layer}.linear_attn.A_log",
        &[Piece::whole(Role::SsmA).with(Op::NegExp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.linear_attn.dt_bias",
        &[Piece::whole(Role::SsmDt)],
    ),
    TensorRule::new(
        "model.layers.{layer}.linear_attn.norm.weight",
        &[Piece::whole(Role::SsmNorm)],
    ),
    TensorRule::new(
        "model.layers.{layer}.linear_attn.out_proj.weight",
        &[Piece::whole(Role::SsmOut)],
    ),
];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        gated: true,
        rope: Some(passes::rope(h, RopeKind::Neox)),
        qk_norm: Some(passes::head_norm(h)),
        ..passes::gqa(h)
    };
    let net = DeltaNet {
        n_head_k: h.ssm_group_count,
        n_head_v: h.ssm_time_step_rank,
        head_dim_k: h.ssm_state_size,
        head_dim_v: h.ssm_inner_size / h.ssm_time_step_rank,
        n_conv: h.ssm_conv_kernel,
        norm: passes::norm(h),
    };
    let experts = Moe {
        shared: passes::shared(h.n_ff_shexp).map(|s| SharedExperts { gated: true, ..s }),
        ..passes::moe(h, h.n_ff_exp)
    };
    passes::model(h, |il| {
        let mixer = if is_attention(h, il) {
            Mixer::Gqa(attention)
        } else {
            Mixer::DeltaNet(net)
        };
        LayerSpec {
            norm_mid_role: Role::PostAttnNorm,
            ..passes::layer(h, mixer, Ffn::Moe(experts))
        }
    })
}

fn is_attention(h: &HParams, il: usize) -> bool {
    h.full_attention_period > 0 && (il + 1).is_multiple_of(h.full_attention_period)
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let n = h.n_embd;
    let (state, heads, inner) = (h.ssm_state_size, h.ssm_group_count, h.ssm_inner_size);
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.add(il, Role::AttnNorm, &[n]);
        if is_attention(h, il) {
            // Each query head with the gate of its output behind it.
            all.add(il, Role::AttnQ, &[n, 2 * h.n_embd_q()]);
            all.add(il, Role::AttnK, &[n, h.n_embd_k()]);
            all.add(il, Role::AttnV, &[n, h.n_embd_v()]);
            all.add(il, Role::AttnOutput, &[h.n_head * h.head_dim_v, n]);
            all.qk_norm(il);
        } else {
            let qkv = 2 * state * heads + inner;
            all.add(il, Role::AttnQkv, &[n, qkv]);
            all.add(il, Role::AttnGate, &[n, inner]);
            all.add(il, Role::SsmBetaAlpha, &[n, 2 * h.ssm_time_step_rank]);
            all.add(il, Role::SsmConv1d, &[h.ssm_conv_kernel, qkv]);
            all.add(il, Role::SsmA, &[h.ssm_time_step_rank]);
            all.add(il, Role::SsmDt, &[h.ssm_time_step_rank]);
            all.add(il, Role::SsmNorm, &[inner / h.ssm_time_step_rank.max(1)]);
            all.add(il, Role::SsmOut, &[inner, n]);
        }
        all.add(il, Role::PostAttnNorm, &[n]);
        all.experts(il, h.n_ff_exp);
        all.shared_experts(il, h.n_ff_shexp);
        all.add(il, Role::FfnGateInpShexp, &[n, 1]);
    }
    all.done()
}
