//! Hunyuan A13B: norms of query and key heads behind the rotation, a shared expert, and contexts stretched by a larger
//! base of the rotation.

use serde_json::Value as Json;

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Fixed, Piece, TensorRule};
use crate::hparams::{self, Hf, Row};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, Moe, QkNorm, RopeKind};
use crate::{Error, HParams, Result, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "hunyuan-moe",
    hf_classes: &["HunYuanMoEV1ForCausalLM"],
    hparams: &[OWN],
    explicit: &[parts::ROPE_EXPLICIT, parts::SOFTMAX_NORM_EXPLICIT],
    fixed: &[
        hf::SILU,
        Fixed::to(&["use_qk_norm"], &["true"]),
        Fixed::to(&["attention_bias"], &["false"]),
    ],
    rope_types: &[DYNAMIC],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        parts::ATTENTION,
        parts::EXPERTS,
        OWN_TENSORS,
    ],
    forward,
    tensors,
    ..Architecture::BASE
};

/// The rotation whose base grows with the context.
const DYNAMIC: &str = "dynamic";

/// The context that the models with [`DYNAMIC`] rotation are made for.
const LONG_CONTEXT: u64 = 256 * 1024;

static OWN: &[Row] = &[
    hparams::CONTEXT_LENGTH
        .computed(|c| Ok(if_dynamic(c, LONG_CONTEXT)?.or_else(|| setting(c, "max_position_embeddings")))),
    hparams::ROPE_FREQ_BASE.computed(rope_base),
    // The experts are as wide as a dense network; `moe_intermediate_size` says the same in the models that exist.
    Row {
        hf: Hf::Paths(&["intermediate_size"]),
        ..hparams::EXPERT_SHARED_FEED_FORWARD_LENGTH.required()
    },
    Row {
        hf: Hf::Paths(&["intermediate_size"]),
        ..hparams::EXPERT_FEED_FORWARD_LENGTH.required()
    },
    hparams::EXPERT_USED_COUNT
        .computed(|c| hf::same_for_all(c, "moe_topk"))
        .required(),
    hparams::EXPERT_SHARED_COUNT.computed(|c| hf::same_for_all(c, "num_shared_expert")),
    hparams::ROPE_SCALING_TYPE.computed(|c| if_dynamic(c, "none")),
    hparams::ROPE_SCALING_FACTOR.computed(|c| if_dynamic(c, 1.0)),
    hparams::ROPE_ORIGINAL_CONTEXT.computed(|c| if_dynamic(c, LONG_CONTEXT)),
];

fn setting(config: &Json, path: &str) -> Option<Json> {
    hf::lookup(config, path).cloned()
}

fn if_dynamic(config: &Json, value: impl Into<Json>) -> Result<Option<Json>> {
    let is_dynamic = hf::rope_type(config)? == DYNAMIC;
    Ok(is_dynamic.then(|| value.into()))
}

/// `base * alpha^(d / (d - 2))`: the base that reaches [`LONG_CONTEXT`] without a change of the code.
fn rope_base(config: &Json) -> Result<Option<Json>> {
    if hf::rope_type(config)? != DYNAMIC {
        return Ok(setting(config, "rope_theta").or_else(|| setting(config, "rope_parameters.rope_theta")));
    }
    let base = hf::number(config, "rope_theta")?;
    let base = base
        .or(hf::number(config, "rope_parameters.rope_theta")?)
        .unwrap_or(10_000.0);
    let alpha = hf::rope_setting(config, "alpha")
        .and_then(Json::as_f64)
        .filter(|a| *a > 0.0);
    let dim = hf::count(config, "head_dim")?.filter(|d| *d > 2);
    let (Some(alpha), Some(dim)) = (alpha, dim) else {
        let object = "config.json `rope_scaling.alpha` and `head_dim`";
        return Err(Error::mismatch(
            object,
            "numbers above 0 and 2, as the rotation is dynamic",
            "others",
        ));
    };
    let dim = dim as f64;
    Ok(Some((base * alpha.powf(dim / (dim - 2.0))).into()))
}

static OWN_TENSORS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.mlp.gate.wg.weight",
        &[Piece::whole(Role::FfnGateInp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.shared_mlp.gate_proj.weight",
        &[Piece::whole(Role::FfnGateShexp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.shared_mlp.up_proj.weight",
        &[Piece::whole(Role::FfnUpShexp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.shared_mlp.down_proj.weight",
        &[Piece::whole(Role::FfnDownShexp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.query_layernorm.weight",
        &[Piece::whole(Role::AttnQNorm)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.key_layernorm.weight",
        &[Piece::whole(Role::AttnKNorm)],
    ),
];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        rope: Some(passes::rope(h, RopeKind::Neox)),
        qk_norm: Some(QkNorm {
            after_rope: true,
            ..passes::head_norm(h)
        }),
        ..passes::gqa(h)
    };
    let experts = Moe {
        shared: passes::shared(h.n_ff_shexp),
        ..passes::moe(h, h.n_ff_exp)
    };
    passes::model(h, |_| passes::layer(h, Mixer::Gqa(attention), Ffn::Moe(experts)))
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        all.attention(il);
        all.qk_norm(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        all.experts(il, h.n_ff_exp);
        all.shared_experts(il, h.n_ff_shexp);
    }
    all.done()
}
