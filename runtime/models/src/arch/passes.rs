//! Parts of forward passes that architectures share: what most have, computed from the hyper-parameters. An
//! architecture takes one and replaces what it does otherwise.

use crate::effects::{Effect, Neutral};
use crate::hparams::RopeScaling;
use crate::spec::{
    Activation, Dense, ExpertGroups, Ffn, Gating, Gqa, LayerSpec, Mixer, ModelSpec, Moe, Norm, NormOver,
    QkNorm, QkNormWeights, Rope, RopeFactors, RopeKind, SharedExperts, Window, Yarn,
};
use crate::{HParams, Role};

/// Keys of layers with a window that the description has no place for: heads of other lengths.
pub(super) static WINDOW_HEADS_EFFECTS: &[Effect] = &[
    ("attention.key_length_swa", Neutral::Zero),
    ("attention.value_length_swa", Neutral::Zero),
    ("rope.dimension_count_swa", Neutral::Zero),
];

/// The same, and a base of the rotation.
pub(super) static WINDOW_EFFECTS: &[Effect] = &[
    ("attention.key_length_swa", Neutral::Zero),
    ("attention.value_length_swa", Neutral::Zero),
    ("rope.dimension_count_swa", Neutral::Zero),
    ("rope.freq_base_swa", Neutral::Zero),
];

/// The norm of the model.
pub(super) fn norm(h: &HParams) -> Norm {
    Norm { eps: h.rms_eps }
}

/// A norm with weights of every query and key head, in front of the rotation.
pub(super) fn head_norm(h: &HParams) -> QkNorm {
    QkNorm {
        norm: norm(h),
        over: NormOver::Head,
        after_rope: false,
        weights: QkNormWeights::Present,
    }
}

/// Attention of all positions with scores divided by the root of the key length, without positions.
pub(super) fn gqa(h: &HParams) -> Gqa {
    Gqa {
        n_head: h.n_head,
        n_head_kv: h.n_head_kv,
        head_dim_k: h.head_dim_k,
        head_dim_v: h.head_dim_v,
        fused: false,
        gated: false,
        qk_norm: None,
        rope: None,
        scale: attention_scale(h, 1.0 / (h.head_dim_k as f32).sqrt()),
        softcap: 0.0,
        window: Window::All,
        sinks: false,
        temperature: None,
    }
}

/// The window of layer `il`, where one of every `usual` layers has none and is the last of them, unless the metadata
/// say otherwise.
pub(super) fn window(h: &HParams, il: usize, usual: usize) -> Window {
    let period = if h.swa_period_given { h.swa_period } else { usual };
    if h.n_swa == 0 || (period > 0 && (il + 1).is_multiple_of(period)) {
        Window::All
    } else {
        Window::Last(h.n_swa)
    }
}

/// The factor of scores that the metadata give, else `usual`.
pub(super) fn attention_scale(h: &HParams, usual: f32) -> f32 {
    or(h.attention_scale, usual)
}

/// A value, or the usual one where 0 stands for an absent key.
pub(super) fn or<T: Default + PartialEq>(value: T, usual: T) -> T {
    if value == T::default() { usual } else { value }
}

/// The rotation that the metadata ask for.
pub(super) fn rope(h: &HParams, kind: RopeKind) -> Rope {
    let plain = Rope {
        kind,
        n_rot: h.n_rot,
        base: h.rope_base,
        scale: 1.0,
        factors: RopeFactors::One,
        yarn: None,
        magnitude: h.rope_attn_factor,
    };
    match h.rope_scaling {
        RopeScaling::None | RopeScaling::LongRope => plain,
        RopeScaling::Linear => Rope {
            scale: 1.0 / h.rope_factor,
            ..plain
        },
        RopeScaling::Yarn => Rope {
            scale: 1.0 / h.rope_factor,
            yarn: yarn(h),
            magnitude: yarn_magnitude(h) * h.rope_attn_factor,
            ..plain
        },
    }
}

/// The ramp between the pairs that turn `yarn_beta_fast` times within the training's context and those that turn
/// `yarn_beta_slow` times.
fn yarn(h: &HParams) -> Option<Yarn> {
    let ext_factor = h.yarn_ext_factor.unwrap_or(1.0);
    let pair = |turns: f32| {
        let turns = f64::from(turns) * 2.0 * std::f64::consts::PI;
        let ratio = (h.n_ctx_orig as f64 / turns).ln();
        h.n_rot as f64 * ratio / (2.0 * f64::from(h.rope_base).ln())
    };
    (ext_factor != 0.0).then(|| Yarn {
        ext_factor,
        low: pair(h.yarn_beta_fast).floor().max(0.0) as f32,
        high: pair(h.yarn_beta_slow).ceil().min(h.n_rot as f64 - 1.0) as f32,
    })
}

/// How much longer `YaRN` makes rotated elements: `1 + 0.1 ln(factor)`, unless the metadata say.
fn yarn_magnitude(h: &HParams) -> f32 {
    match h.yarn_attn_factor {
        _ if h.yarn_ext_factor == Some(0.0) => 1.0,
        factor if factor != 0.0 => factor,
        _ => log_growth(h.rope_factor, 1.0),
    }
}

/// `1 + 0.1 * multiplier * ln(factor)` for factors above 1, else 1.
pub(super) fn log_growth(factor: f32, multiplier: f32) -> f32 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * multiplier * factor.ln() + 1.0
    }
}

/// A dense network with `silu`.
pub(super) fn dense(h: &HParams) -> Dense {
    Dense {
        n_ff: h.n_ff,
        activation: Activation::Silu,
        fused: false,
    }
}

/// Experts of width `n_ff`, routed as the metadata say, by default by a softmax over all with the weights of the
/// chosen divided by their sum; without shared ones.
pub(super) fn moe(h: &HParams, n_ff: usize) -> Moe {
    moe_scored_by(h, n_ff, Gating::Softmax)
}

/// The same with other scores where the metadata do not name any.
pub(super) fn moe_scored_by(h: &HParams, n_ff: usize, usual: Gating) -> Moe {
    let gating = match h.gating {
        Some(2) => Gating::Sigmoid,
        Some(3) => Gating::SoftmaxOfChosen,
        Some(4) => Gating::SqrtSoftplus,
        Some(_) => Gating::Softmax,
        None => usual,
    };
    // With probabilities that sum to one, the best expert of a group stands for it, else its best two.
    let n_scored = if gating == Gating::Softmax { 1 } else { 2 };
    Moe {
        n_expert: h.n_expert,
        n_used: h.n_expert_used,
        n_ff,
        gating,
        groups: (h.n_expert_groups > 1 && h.n_groups_used < h.n_expert_groups).then_some(ExpertGroups {
            n: h.n_expert_groups,
            n_used: h.n_groups_used,
            n_scored,
        }),
        norm_weights: h.expert_weights_norm.unwrap_or(true),
        weights_scale: h.expert_weights_scale,
        weighted_input: false,
        activation: Activation::Silu,
        shared: None,
    }
}

/// Experts of width `n_ff` together that every token passes; none of width 0.
pub(super) fn shared(n_ff: usize) -> Option<SharedExperts> {
    (n_ff > 0).then_some(SharedExperts { n_ff, gated: false })
}

/// A layer with norms in front of its two parts.
pub(super) fn layer(h: &HParams, mixer: Mixer, ffn: Ffn) -> LayerSpec {
    LayerSpec {
        norm_in: norm(h),
        mixer,
        norm_mixed: None,
        norm_mid: norm(h),
        norm_mid_role: Role::FfnNorm,
        ffn,
        norm_out: None,
    }
}

/// A model of such layers, without those that predict further tokens.
pub(super) fn model(h: &HParams, layer: impl Fn(usize) -> LayerSpec) -> ModelSpec {
    ModelSpec {
        n_embd: h.n_embd,
        n_vocab: h.n_vocab,
        n_ctx_train: h.n_ctx_train,
        embedding_scale: 1.0,
        residual_scale: 1.0,
        layers: (0..h.n_layer_main()).map(layer).collect(),
        norm_out: norm(h),
        logit_scale: 1.0,
        logit_softcap: 0.0,
    }
}
