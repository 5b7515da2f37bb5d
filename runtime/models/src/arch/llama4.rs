//! Llama 4: three layers of chunked attention with rotation, then one of full attention without positions; one expert
//! of many and one that every token passes, in every layer or every second.

use serde_json::{Value as Json, json};

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, Computed, TensorExpectation};
use crate::hf::{self, Cut, Fixed, Piece, TensorRule};
use crate::hparams::{self, Row};
use crate::spec::{
    Ffn, Gating, Gqa, Mixer, ModelSpec, Moe, QkNorm, QkNormWeights, Rope, RopeFactors, RopeKind, Temperature,
    Window,
};
use crate::{Error, HParams, Result, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "llama4",
    hf_classes: &["Llama4ForCausalLM", "Llama4ForConditionalGeneration"],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT],
    effects: passes::WINDOW_EFFECTS,
    fixed: &[
        hf::SILU,
        Fixed::to(&["attention_bias"], &["false"]),
        Fixed::to(&["no_rope_layer_interval"], &["4"]),
        // Early configs have a 4 for yes.
        Fixed::to(&["attn_temperature_tuning"], &["true", "4"]),
    ],
    rope_types: &["llama3"],
    hf_tensors: &[parts::WHOLE_MODEL, parts::NORMS, parts::ATTENTION, DENSE, EXPERTS],
    computed,
    forward,
    tensors,
    ..Architecture::BASE
};

/// Every so many layers one has no positions and sees all that went before.
const FULL_EVERY: usize = 4;
/// Positions of a chunk, and of a step of the temperature, where nothing is given.
const USUAL_CHUNK: usize = 8192;
/// Models with so many experts have no norms of heads.
const N_EXPERT_WITHOUT_NORM: u64 = 128;

static OWN: &[Row] = &[
    hparams::FEED_FORWARD_LENGTH.from_paths(&["intermediate_size_mlp"]),
    hparams::VOCAB_SIZE,
    hparams::ROPE_DIMENSION_COUNT,
    hparams::INTERLEAVE_MOE_LAYER_STEP.required(),
    hparams::EXPERT_FEED_FORWARD_LENGTH
        .from_paths(&["intermediate_size"])
        .required(),
];

static EXPLICIT: &[Row] = &[
    hparams::ROPE_FREQ_BASE.computed(|_| Ok(Some(5e5.into()))),
    // Loaders of the reference take 8192 for the chunk and for the positions of a step of the temperature.
    hparams::SLIDING_WINDOW.computed(chunk),
    hparams::TEMPERATURE_LENGTH.computed(|c| {
        Ok(Some(
            hf::count(c, "floor_scale")?.unwrap_or(USUAL_CHUNK as u64).into(),
        ))
    }),
    hparams::TEMPERATURE_SCALE.computed(|c| Ok(Some(hf::number(c, "attn_scale")?.unwrap_or(0.1).into()))),
    hparams::EXPERT_GATING_FUNC.computed(|_| Ok(Some("sigmoid".into()))),
    hparams::EXPERT_WEIGHTS_NORM.computed(|_| Ok(Some(false.into()))),
    hparams::EXPERT_WEIGHTS_SCALE.computed(|_| Ok(Some(1.0.into()))),
];

/// The chunk of attention, 0 where all layers see everything.
fn chunk(config: &Json) -> Result<Option<Json>> {
    let types = hf::lookup(config, "layer_types").and_then(Json::as_array);
    if types.is_some_and(|types| types.iter().all(|t| t == "full_attention")) {
        return Ok(Some(0.into()));
    }
    Ok(Some(
        hf::count(config, "attention_chunk_size")?
            .unwrap_or(USUAL_CHUNK as u64)
            .into(),
    ))
}

/// What GGUF has no keys for must be as loaders assume it.
fn computed(config: &Json, h: &HParams) -> Result<Vec<Computed>> {
    let expect = |path: &str, expected: Json| match hf::lookup(config, path) {
        Some(found) if *found != expected && *found != json!([]) => {
            Err(hf::wrong_type(path, &expected.to_string(), found))
        }
        _ => Ok(()),
    };
    let layers = || 0..h.n_layer;
    let rotated: Vec<_> = layers().map(|il| u8::from(!is_full(il))).collect();
    expect("no_rope_layers", rotated.into())?;
    expect("moe_layers", layers().filter(|il| is_moe(h, *il)).collect())?;
    let n_expert = h.n_expert as u64;
    if let Some(norm) = hf::flag(config, "use_qk_norm")?
        && norm != (n_expert != N_EXPERT_WITHOUT_NORM)
    {
        return Err(Error::mismatch(
            "config.json `use_qk_norm`",
            format!("{}, as loaders take it for {n_expert} experts", !norm),
            norm,
        ));
    }
    parts::llama3_rope_freqs(config, h)
}

fn is_full(il: usize) -> bool {
    (il + 1).is_multiple_of(FULL_EVERY)
}

fn is_moe(h: &HParams, il: usize) -> bool {
    h.moe_step > 0 && (il + 1).is_multiple_of(h.moe_step)
}

static DENSE: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.feed_forward.gate_proj.weight",
        &[Piece::whole(Role::FfnGate)],
    ),
    TensorRule::new(
        "model.layers.{layer}.feed_forward.up_proj.weight",
        &[Piece::whole(Role::FfnUp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.feed_forward.down_proj.weight",
        &[Piece::whole(Role::FfnDown)],
    ),
];

/// Fused experts have their inputs as rows.
static EXPERTS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.feed_forward.router.weight",
        &[Piece::whole(Role::FfnGateInp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.feed_forward.experts.gate_up_proj",
        &[
            Piece::whole(Role::FfnGateExps).cols(Cut::Half(0)).transposed(),
            Piece::whole(Role::FfnUpExps).cols(Cut::Half(1)).transposed(),
        ],
    ),
    TensorRule::new(
        "model.layers.{layer}.feed_forward.experts.down_proj",
        &[Piece::whole(Role::FfnDownExps).transposed()],
    ),
    TensorRule::new(
        "model.layers.{layer}.feed_forward.experts.{expert}.down_proj.weight",
        &[Piece::whole(Role::FfnDownExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.feed_forward.experts.{expert}.gate_proj.weight",
        &[Piece::whole(Role::FfnGateExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.feed_forward.experts.{expert}.up_proj.weight",
        &[Piece::whole(Role::FfnUpExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.feed_forward.shared_expert.gate_proj.weight",
        &[Piece::whole(Role::FfnGateShexp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.feed_forward.shared_expert.up_proj.weight",
        &[Piece::whole(Role::FfnUpShexp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.feed_forward.shared_expert.down_proj.weight",
        &[Piece::whole(Role::FfnDownShexp)],
    ),
];

fn forward(h: &HParams) -> ModelSpec {
    let rope = Rope {
        factors: RopeFactors::Freqs,
        ..passes::rope(h, RopeKind::Norm)
    };
    let norm = QkNorm {
        after_rope: true,
        weights: QkNormWeights::Ones,
        ..passes::head_norm(h)
    };
    let window = match h.n_swa_given.then_some(h.n_swa) {
        Some(0) => Window::All,
        n => Window::Chunk(n.unwrap_or(USUAL_CHUNK)),
    };
    let temperature = Temperature {
        scale: passes::or(h.temperature_scale, 0.1),
        length: passes::or(h.temperature_length, USUAL_CHUNK),
        offset: 1,
    };
    let experts = Moe {
        norm_weights: h.expert_weights_norm.unwrap_or(false),
        weighted_input: true,
        shared: passes::shared(h.n_ff_exp),
        ..passes::moe_scored_by(h, h.n_ff_exp, Gating::Sigmoid)
    };
    passes::model(h, |il| {
        let attention = if is_full(il) {
            Gqa {
                temperature: Some(temperature),
                ..passes::gqa(h)
            }
        } else {
            Gqa {
                rope: Some(rope),
                qk_norm: (h.n_expert as u64 != N_EXPERT_WITHOUT_NORM).then_some(norm),
                window,
                ..passes::gqa(h)
            }
        };
        let ffn = if is_moe(h, il) {
            Ffn::Moe(experts)
        } else {
            Ffn::Dense(passes::dense(h))
        };
        passes::layer(h, Mixer::Gqa(attention), ffn)
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h).rope_freqs();
    for il in 0..h.n_layer {
        all.attention(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        if is_moe(h, il) {
            all.experts(il, h.n_ff_exp);
            all.shared_experts(il, h.n_ff_exp);
        } else {
            all.dense(il);
        }
    }
    all.done()
}
