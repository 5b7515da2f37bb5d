//! What the Gemma models have in common: norms stored as the difference from one, norms in front of and behind every
//! part of a layer, layers with a window between layers without, an output that is the embedding.

use serde_json::Value as Json;

use super::parts::Expect;
use super::passes;
use crate::hf::{self, Fixed, Op, Piece, Skip, TensorRule};
use crate::hparams::{self, Row};
use crate::spec::{Activation, Dense, Ffn, Gqa, LayerSpec, Mixer, ModelSpec};
use crate::{Error, HParams, Role};

/// What they have beside [`super::parts::NORMS_FROM_ONE`]: norms around the feed-forward network, a tied output.
pub(super) static TENSORS: &[TensorRule] = &[
    TensorRule::skip("lm_head.weight", Skip::TiedOutput),
    TensorRule::new(
        "model.layers.{layer}.pre_feedforward_layernorm.weight",
        &[Piece::whole(Role::FfnNorm).with(Op::AddOne)],
    ),
    TensorRule::new(
        "model.layers.{layer}.post_feedforward_layernorm.weight",
        &[Piece::whole(Role::PostFfnNorm).with(Op::AddOne)],
    ),
];

/// What all of them take for granted.
pub(super) static FIXED: &[Fixed] = &[
    hf::GELU,
    Fixed::to(&["attention_bias"], &["false"]),
    Fixed::to(&["tie_word_embeddings"], &["true"]),
    Fixed::to(&["use_bidirectional_attention"], &["false"]),
    // Layers with a window have a rotation that nothing scales.
    Fixed::to(&["rope_parameters.sliding_attention.rope_type"], &["\"default\""]),
];

/// The factor of the scores, which loaders derive from the model's size.
pub(super) const ATTENTION_SCALE: Row = hparams::ATTENTION_SCALE.computed(|config| {
    const PATH: &str = "query_pre_attn_scalar";
    let Some(scalar) = hf::number(config, PATH)? else {
        return Ok(None);
    };
    if scalar <= 0.0 {
        return Err(Error::mismatch(
            format!("config.json `{PATH}`"),
            "a number above 0",
            scalar,
        ));
    }
    Ok(Some(scalar.sqrt().recip().into()))
});

/// The factor of the scores: the key's, else that of the model's size, which its number of layers tells. Models of
/// `n_layer_largest` layers divide by the root of the share of a head in the embedding.
pub(super) fn attention_scale(h: &HParams, n_layer_largest: usize) -> f32 {
    let dim = if h.n_layer == n_layer_largest {
        h.n_embd / h.n_head
    } else {
        h.head_dim_k
    };
    passes::attention_scale(h, 1.0 / (dim as f32).sqrt())
}

/// The forward pass, with norms around both parts of a layer.
pub(super) fn forward(h: &HParams, attention: impl Fn(usize) -> Gqa) -> ModelSpec {
    let dense = Dense {
        activation: Activation::Gelu,
        ..passes::dense(h)
    };
    ModelSpec {
        embedding_scale: (h.n_embd as f32).sqrt(),
        logit_softcap: h.final_softcap,
        ..passes::model(h, |il| LayerSpec {
            norm_mixed: Some(passes::norm(h)),
            norm_out: Some(passes::norm(h)),
            ..passes::layer(h, Mixer::Gqa(attention(il)), Ffn::Dense(dense))
        })
    }
}

/// A setting, or what its absence means.
pub(super) fn or(config: &Json, path: &str, usual: impl Into<Json>) -> Json {
    let found = hf::lookup(config, path).cloned();
    found.unwrap_or_else(|| usual.into())
}

/// Tensors of a layer but for norms of heads.
pub(super) fn layer(all: &mut Expect<'_>, il: usize, h: &HParams) {
    all.attention(il);
    all.add(il, Role::PostAttnNorm, &[h.n_embd]);
    all.add(il, Role::FfnNorm, &[h.n_embd]);
    all.dense(il);
    all.add(il, Role::PostFfnNorm, &[h.n_embd]);
}
