//! gpt-oss: windows of attention in every second layer, sinks, biases everywhere, experts with a clamped gate.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Becomes, Cut, Fixed, Piece, TensorRule};
use crate::hparams::{self, Row};
use crate::spec::{Activation, Ffn, Gating, Gqa, LayerSpec, Mixer, ModelSpec, Moe, RopeKind};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gpt-oss",
    hf_classes: &["GptOssForCausalLM"],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT],
    effects: passes::WINDOW_EFFECTS,
    fixed: &[
        hf::SILU,
        Fixed::to(&["attention_bias"], &["true"]),
        Fixed::to(&["swiglu_alpha"], &["1.702"]),
        Fixed::to(&["swiglu_limit"], &["7.0", "7"]),
    ],
    rope_types: &["yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::POST_ATTENTION_NORMS,
        RULES,
        parts::ATTENTION,
    ],
    computed: |config, h| {
        parts::check_layer_types(config, h.n_layer, |il| {
            if il.is_multiple_of(2) {
                "sliding_attention"
            } else {
                "full_attention"
            }
        })?;
        Ok(Vec::new())
    },
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[
    hparams::SLIDING_WINDOW.required(),
    hparams::EXPERT_FEED_FORWARD_LENGTH
        .from_paths(&["intermediate_size"])
        .required(),
];

static EXPLICIT: &[Row] = &[
    hparams::SLIDING_WINDOW_PATTERN,
    hparams::ROPE_FREQ_BASE.computed(|_| Ok(Some(150_000.0.into()))),
    hparams::EXPERT_GATING_FUNC.computed(|_| Ok(Some(hf::SOFTMAX_OF_CHOSEN.into()))),
    hparams::EXPERT_WEIGHTS_NORM.computed(|_| Ok(Some(false.into()))),
    hparams::EXPERT_WEIGHTS_SCALE.computed(|_| Ok(Some(1.0.into()))),
];

/// Rows of gates and of ups alternate. Plain numbers have the inputs as rows, quantized blocks the outputs.
static RULES: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.self_attn.sinks",
        &[Piece::whole(Role::AttnSinks)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.router.weight",
        &[Piece::whole(Role::FfnGateInp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.router.bias",
        &[Piece::bias(Role::FfnGateInp)],
    ),
    TensorRule {
        pattern: "model.layers.{layer}.mlp.experts.gate_up_proj",
        becomes: Becomes::ByStorage {
            plain: &[
                Piece::whole(Role::FfnGateExps)
                    .cols(Cut::EverySecond(0))
                    .transposed(),
                Piece::whole(Role::FfnUpExps)
                    .cols(Cut::EverySecond(1))
                    .transposed(),
            ],
            blocks: &[
                Piece::whole(Role::FfnGateExps).rows(Cut::EverySecond(0)),
                Piece::whole(Role::FfnUpExps).rows(Cut::EverySecond(1)),
            ],
        },
    },
    TensorRule {
        pattern: "model.layers.{layer}.mlp.experts.down_proj",
        becomes: Becomes::ByStorage {
            plain: &[Piece::whole(Role::FfnDownExps).transposed()],
            blocks: &[Piece::whole(Role::FfnDownExps)],
        },
    },
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.gate_up_proj_bias",
        &[
            Piece::bias(Role::FfnGateExps).cols(Cut::EverySecond(0)),
            Piece::bias(Role::FfnUpExps).cols(Cut::EverySecond(1)),
        ],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.down_proj_bias",
        &[Piece::bias(Role::FfnDownExps)],
    ),
];

fn forward(h: &HParams) -> ModelSpec {
    let rope = passes::rope(h, RopeKind::Neox);
    let experts = Moe {
        norm_weights: h.expert_weights_norm.unwrap_or(false),
        activation: Activation::SwigluClamped {
            alpha: 1.702,
            limit: 7.0,
        },
        ..passes::moe_scored_by(h, h.n_ff_exp, Gating::SoftmaxOfChosen)
    };
    passes::model(h, |il| {
        let attention = Gqa {
            rope: Some(rope),
            sinks: true,
            window: passes::window(h, il, 2),
            ..passes::gqa(h)
        };
        LayerSpec {
            norm_mid_role: Role::PostAttnNorm,
            ..passes::layer(h, Mixer::Gqa(attention), Ffn::Moe(experts))
        }
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    let (n, n_expert) = (h.n_embd, h.n_expert);
    for il in 0..h.n_layer {
        all.attention(il);
        all.qkv_bias(il);
        all.bias(il, Role::AttnOutput, &[n]);
        all.add(il, Role::AttnSinks, &[h.n_head]);
        all.add(il, Role::PostAttnNorm, &[n]);
        all.experts(il, h.n_ff_exp);
        all.bias(il, Role::FfnGateInp, &[n_expert]);
        all.bias(il, Role::FfnGateExps, &[h.n_ff_exp, n_expert]);
        all.bias(il, Role::FfnUpExps, &[h.n_ff_exp, n_expert]);
        all.bias(il, Role::FfnDownExps, &[n, n_expert]);
    }
    all.done()
}
