//! Phi 3, 3.5 and 4: queries, keys and values in one matrix, gate and up in another, long contexts by factors for each
//! frequency.

use serde_json::Value as Json;

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, Computed, TensorExpectation};
use crate::hf::{self, Fixed, Piece, TensorRule};
use crate::hparams::{self, Row};
use crate::spec::{Dense, Ffn, Gqa, Mixer, ModelSpec, Rope, RopeFactors, RopeKind};
use crate::{Error, HParams, Result, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "phi3",
    hf_classes: &["Phi3ForCausalLM"],
    generic: &[],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT],
    fixed: &[hf::SILU, Fixed::to(&["attention_bias"], &["false"])],
    rope_types: LONG,
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        OWN_TENSORS,
        parts::ATTENTION,
        parts::DENSE,
    ],
    computed: rope_factors,
    forward,
    tensors,
    ..Architecture::BASE
};

/// Rotations with factors for short and for long contexts.
const LONG: &[&str] = &["longrope", "su"];

static OWN: &[Row] = &[
    hparams::CONTEXT_LENGTH,
    hparams::ROPE_ORIGINAL_CONTEXT.computed(|c| Ok(original_context(c)?.map(Into::into))),
    hparams::EMBEDDING_LENGTH,
    hparams::FEED_FORWARD_LENGTH.required(),
    hparams::BLOCK_COUNT,
    hparams::HEAD_COUNT,
    hparams::HEAD_COUNT_KV,
    hparams::RMS_EPSILON,
    hparams::ROPE_DIMENSION_COUNT,
    hparams::ROPE_FREQ_BASE,
    hparams::FILE_TYPE,
    hparams::SLIDING_WINDOW.computed(|c| Ok(Some(hf::count(c, "sliding_window")?.unwrap_or(0).into()))),
    hparams::ROPE_ATTN_FACTOR.computed(attention_factor),
];

static EXPLICIT: &[Row] = &[hparams::ROPE_SCALING_TYPE.computed(|c| {
    let is_long = LONG.contains(&hf::rope_type(c)?);
    Ok(Some(if is_long { "longrope" } else { "none" }.into()))
})];

/// Positions of the training before the context was stretched.
fn original_context(config: &Json) -> Result<Option<u64>> {
    const NAME: &str = "original_max_position_embeddings";
    let inside = hf::rope_setting(config, NAME).and_then(hf::whole_number);
    let found = hf::count(config, NAME)?.or(inside);
    found.map_or_else(|| hf::count(config, "max_position_embeddings"), |n| Ok(Some(n)))
}

/// `sqrt(1 + ln(s) / ln(original))` for a context that is `s` times the original one: the growth of the scores that
/// keeps their spread.
fn attention_factor(config: &Json) -> Result<Option<Json>> {
    if !LONG.contains(&hf::rope_type(config)?) {
        return Ok(None);
    }
    let original = original_context(config)?.filter(|n| *n > 1);
    let context = hf::count(config, "max_position_embeddings")?;
    let (Some(original), Some(context)) = (original, context) else {
        let object = "config.json `original_max_position_embeddings`";
        return Err(Error::mismatch(
            object,
            "a number above 1, as the rotation is scaled",
            "another",
        ));
    };
    let times = context as f64 / original as f64;
    let factor = if times > 1.0 {
        (1.0 + times.ln() / (original as f64).ln()).sqrt()
    } else {
        1.0
    };
    Ok(Some(factor.into()))
}

/// The factors of each frequency, one for each pair of rotated elements.
fn rope_factors(config: &Json, h: &HParams) -> Result<Vec<Computed>> {
    if !LONG.contains(&hf::rope_type(config)?) {
        return Ok(Vec::new());
    }
    let of = |role, name: &str| {
        let values = hf::rope_setting(config, name).and_then(Json::as_array);
        let values = values.into_iter().flatten().map(|v| v.as_f64().map(|v| v as f32));
        let values: Option<Vec<f32>> = values.collect();
        let sound = values.filter(|v| v.len() == h.n_rot / 2 && v.iter().all(|x| *x > 0.0 && x.is_finite()));
        sound.map(|values| Computed { role, values }).ok_or_else(|| {
            let expected = format!("{} numbers above 0", h.n_rot / 2);
            Error::mismatch(
                format!("config.json `{name}` of the rotation"),
                expected,
                "others",
            )
        })
    };
    Ok(vec![
        of(Role::RopeFactorsLong, "long_factor")?,
        of(Role::RopeFactorsShort, "short_factor")?,
    ])
}

static OWN_TENSORS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.self_attn.qkv_proj.weight",
        &[Piece::whole(Role::AttnQkv)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.gate_up_proj.weight",
        &[Piece::whole(Role::FfnUp)],
    ),
];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        fused: true,
        rope: Some(Rope {
            factors: RopeFactors::ShortLong {
                n_ctx_orig: h.n_ctx_orig,
            },
            ..passes::rope(h, RopeKind::Neox)
        }),
        ..passes::gqa(h)
    };
    let dense = Dense {
        fused: true,
        ..passes::dense(h)
    };
    passes::model(h, |_| passes::layer(h, Mixer::Gqa(attention), Ffn::Dense(dense)))
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let n = h.n_embd;
    let mut all = Expect::model(h).rope_factors();
    for il in 0..h.n_layer {
        all.add(il, Role::AttnNorm, &[n]);
        all.add(
            il,
            Role::AttnQkv,
            &[n, h.n_embd_q() + h.n_embd_k() + h.n_embd_v()],
        );
        all.add(il, Role::AttnOutput, &[h.n_head * h.head_dim_v, n]);
        all.add(il, Role::FfnNorm, &[n]);
        all.add(il, Role::FfnUp, &[n, 2 * h.n_ff]);
        all.add(il, Role::FfnDown, &[h.n_ff, n]);
    }
    all.done()
}
