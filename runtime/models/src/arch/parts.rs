//! What several architectures have in common: tensor rules of checkpoints, rows that are always written, and
//! expected tensors.

use serde_json::Value as Json;

use super::{Computed, TensorExpectation};
use crate::hf::{self, Cut, Op, Piece, TensorRule};
use crate::hparams::{self, Row};
use crate::{Error, HParams, Result, Role};

/// Tensors outside layers.
pub static WHOLE_MODEL: &[TensorRule] = &[
    TensorRule::new("model.embed_tokens.weight", &[Piece::whole(Role::TokenEmbd)]),
    TensorRule::new("model.norm.weight", &[Piece::whole(Role::OutputNorm)]),
    TensorRule::new("lm_head.weight", &[Piece::whole(Role::Output)]),
];

/// The two norms of a layer.
pub static NORMS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.input_layernorm.weight",
        &[Piece::whole(Role::AttnNorm)],
    ),
    TensorRule::new(
        "model.layers.{layer}.post_attention_layernorm.weight",
        &[Piece::whole(Role::FfnNorm)],
    ),
];

/// Attention with query and key rows in the order that the model's rotation needs.
pub static ATTENTION: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.self_attn.q_proj.weight",
        &[Piece::whole(Role::AttnQ)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.k_proj.weight",
        &[Piece::whole(Role::AttnK)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.v_proj.weight",
        &[Piece::whole(Role::AttnV)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.o_proj.weight",
        &[Piece::whole(Role::AttnOutput)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.q_proj.bias",
        &[Piece::bias(Role::AttnQ)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.k_proj.bias",
        &[Piece::bias(Role::AttnK)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.v_proj.bias",
        &[Piece::bias(Role::AttnV)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.o_proj.bias",
        &[Piece::bias(Role::AttnOutput)],
    ),
];

/// Halves of each head interleaved.
const PERMUTED: Cut = Cut::Interleaved(|h| h.head_dim_k);

/// Query and key rows of checkpoints that rotate halves (as all of Hugging Face's Llama kin do), for an architecture
/// that rotates neighbours. In front of [`ATTENTION`].
pub static PERMUTED_ATTENTION: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.self_attn.q_proj.weight",
        &[Piece::whole(Role::AttnQ).rows(PERMUTED)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.k_proj.weight",
        &[Piece::whole(Role::AttnK).rows(PERMUTED)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.q_proj.bias",
        &[Piece::bias(Role::AttnQ).cols(PERMUTED)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.k_proj.bias",
        &[Piece::bias(Role::AttnK).cols(PERMUTED)],
    ),
];

/// Norms of query and key heads, or of all heads together.
pub static QK_NORM: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.self_attn.q_norm.weight",
        &[Piece::whole(Role::AttnQNorm)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.k_norm.weight",
        &[Piece::whole(Role::AttnKNorm)],
    ),
];

/// A dense feed-forward network.
pub static DENSE: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.mlp.gate_proj.weight",
        &[Piece::whole(Role::FfnGate)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.up_proj.weight",
        &[Piece::whole(Role::FfnUp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.down_proj.weight",
        &[Piece::whole(Role::FfnDown)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.gate_proj.bias",
        &[Piece::bias(Role::FfnGate)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.up_proj.bias",
        &[Piece::bias(Role::FfnUp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.down_proj.bias",
        &[Piece::bias(Role::FfnDown)],
    ),
];

/// The router of `mlp`.
pub static ROUTER: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.mlp.gate.weight",
        &[Piece::whole(Role::FfnGateInp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.gate.e_score_correction_bias",
        &[Piece::whole(Role::ExpProbsB)],
    ),
];

/// Experts with a tensor each, or fused as newer checkpoints have them. The stacks of a layer are written together,
/// in this order, when the last expert has been seen.
pub static EXPERTS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight",
        &[Piece::whole(Role::FfnDownExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
        &[Piece::whole(Role::FfnGateExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
        &[Piece::whole(Role::FfnUpExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.down_proj",
        &[Piece::whole(Role::FfnDownExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.gate_up_proj",
        &[
            Piece::whole(Role::FfnGateExps).rows(Cut::Half(0)),
            Piece::whole(Role::FfnUpExps).rows(Cut::Half(1)),
        ],
    ),
];

/// Experts as Mixtral names them: `w1` is the gate, `w2` goes down, `w3` up.
pub static MIXTRAL_EXPERTS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight",
        &[Piece::whole(Role::FfnGateExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight",
        &[Piece::whole(Role::FfnDownExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight",
        &[Piece::whole(Role::FfnUpExps)],
    ),
    TensorRule::new(
        "model.layers.{layer}.block_sparse_moe.gate.weight",
        &[Piece::whole(Role::FfnGateInp)],
    ),
];

/// Experts that every token passes.
pub static SHARED_EXPERTS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.mlp.shared_experts.gate_proj.weight",
        &[Piece::whole(Role::FfnGateShexp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.shared_experts.up_proj.weight",
        &[Piece::whole(Role::FfnUpShexp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.shared_experts.down_proj.weight",
        &[Piece::whole(Role::FfnDownShexp)],
    ),
];

/// Norms that are stored as the difference from one: that of the output, those of a layer and of query and key heads. In
/// front of [`WHOLE_MODEL`].
pub static NORMS_FROM_ONE: &[TensorRule] = &[
    TensorRule::new(
        "model.norm.weight",
        &[Piece::whole(Role::OutputNorm).with(Op::AddOne)],
    ),
    TensorRule::new(
        "model.layers.{layer}.input_layernorm.weight",
        &[Piece::whole(Role::AttnNorm).with(Op::AddOne)],
    ),
    TensorRule::new(
        "model.layers.{layer}.post_attention_layernorm.weight",
        &[Piece::whole(Role::PostAttnNorm).with(Op::AddOne)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.q_norm.weight",
        &[Piece::whole(Role::AttnQNorm).with(Op::AddOne)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.k_norm.weight",
        &[Piece::whole(Role::AttnKNorm).with(Op::AddOne)],
    ),
];

/// The two norms of a layer, in files that name the second one after what it stands behind.
pub static POST_ATTENTION_NORMS: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.input_layernorm.weight",
        &[Piece::whole(Role::AttnNorm)],
    ),
    TensorRule::new(
        "model.layers.{layer}.post_attention_layernorm.weight",
        &[Piece::whole(Role::PostAttnNorm)],
    ),
];

/// One expert that every token passes, with a gate for its output.
pub static GATED_SHARED_EXPERT: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.mlp.shared_expert.gate_proj.weight",
        &[Piece::whole(Role::FfnGateShexp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.shared_expert.up_proj.weight",
        &[Piece::whole(Role::FfnUpShexp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.shared_expert.down_proj.weight",
        &[Piece::whole(Role::FfnDownShexp)],
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.shared_expert_gate.weight",
        &[Piece::whole(Role::FfnGateInpShexp)],
    ),
];

/// Softmax over all experts, weights of the chosen as they are.
pub static SOFTMAX_EXPLICIT: &[Row] = &[
    hparams::EXPERT_GATING_FUNC.computed(|c| Ok(with_experts(c, "softmax"))),
    hparams::EXPERT_WEIGHTS_NORM.computed(|c| Ok(with_experts(c, false))),
    hparams::EXPERT_WEIGHTS_SCALE.computed(|c| Ok(with_experts(c, 1.0))),
];

/// A layer that predicts further tokens has, beside what other layers have, these.
pub static NEXTN: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.eh_proj.weight",
        &[Piece::whole(Role::NextnEhProj)],
    ),
    TensorRule::new(
        "model.layers.{layer}.enorm.weight",
        &[Piece::whole(Role::NextnEnorm)],
    ),
    TensorRule::new(
        "model.layers.{layer}.hnorm.weight",
        &[Piece::whole(Role::NextnHnorm)],
    ),
    TensorRule::new(
        "model.layers.{layer}.embed_tokens.weight",
        &[Piece::whole(Role::NextnEmbedTokens)],
    ),
    TensorRule::new(
        "model.layers.{layer}.shared_head.head.weight",
        &[Piece::whole(Role::NextnHead)],
    ),
    TensorRule::new(
        "model.layers.{layer}.shared_head.norm.weight",
        &[Piece::whole(Role::NextnHeadNorm)],
    ),
];

/// The layers of the model and those behind them that predict further tokens.
///
/// # Errors
/// Settings of another type.
pub fn blocks_with_nextn(config: &Json) -> Result<Option<Json>> {
    let nextn = hf::count(config, "num_nextn_predict_layers")?.unwrap_or(0);
    Ok(hf::count(config, "num_hidden_layers")?.map(|n| n.saturating_add(nextn).into()))
}

/// Kinds of layers have no key of their own for every architecture: they must be as loaders assume them.
///
/// # Errors
/// A `layer_types` that is another.
pub fn check_layer_types(config: &Json, n_layer: usize, of: fn(usize) -> &'static str) -> Result<()> {
    let expected: Vec<_> = (0..n_layer).map(of).collect();
    match hf::lookup(config, "layer_types") {
        Some(found) if *found != Json::from(expected.as_slice()) => {
            let expected = format!("{} and so on", expected.get(..4).unwrap_or(&expected).join(", "));
            Err(hf::wrong_type("layer_types", &expected, found))
        }
        _ => Ok(()),
    }
}

/// How much of a head is rotated, at what base, and that nothing scales it. The base is that of most classes; an
/// architecture whose class has another default puts a row of its own in front.
pub static ROPE_EXPLICIT: &[Row] = &[
    hparams::ROPE_DIMENSION_COUNT,
    hparams::ROPE_FREQ_BASE.computed(|_| Ok(Some(10_000.0.into()))),
    hparams::ROPE_SCALING_TYPE.computed(|_| Ok(Some("none".into()))),
];

/// Softmax over all experts, weights of the chosen divided by their sum, no further factor. For an architecture that
/// can also be dense: nothing where the config has no experts.
pub static SOFTMAX_NORM_EXPLICIT: &[Row] = &[
    hparams::EXPERT_GATING_FUNC.computed(|c| Ok(with_experts(c, "softmax"))),
    hparams::EXPERT_WEIGHTS_NORM.computed(|c| Ok(with_experts(c, true))),
    hparams::EXPERT_WEIGHTS_SCALE.computed(|c| Ok(with_experts(c, 1.0))),
];

/// A value for configs that have experts.
pub fn with_experts(config: &Json, value: impl Into<Json>) -> Option<Json> {
    let paths = [
        "num_local_experts",
        "num_experts",
        "n_routed_experts",
        "moe_num_experts",
    ];
    paths
        .iter()
        .any(|p| hf::lookup(config, p).is_some())
        .then(|| value.into())
}

/// The factors of Llama 3's rotation for long contexts: one for each pair, by which its angle is divided.
///
/// # Errors
/// Settings of another type, or that are not positive.
pub fn llama3_rope_freqs(config: &Json, h: &HParams) -> Result<Vec<Computed>> {
    if hf::rope_type(config)? != "llama3" {
        return Ok(Vec::new());
    }
    let setting = |name: &str, default: f64| match hf::rope_setting(config, name) {
        None => Ok(default),
        Some(found) => found.as_f64().filter(|v| *v > 0.0).ok_or_else(|| {
            let object = format!("config.json `{name}` of the rotation");
            Error::mismatch(object, "a number above 0", found)
        }),
    };
    let factor = setting("factor", 8.0)? as f32;
    let (low, high) = (
        setting("low_freq_factor", 1.0)?,
        setting("high_freq_factor", 4.0)?,
    );
    let context = setting("original_max_position_embeddings", 8192.0)?;
    let (low_wavelen, high_wavelen) = ((context / low) as f32, (context / high) as f32);
    let values = (0..h.n_rot / 2).map(|j| {
        // In f32, as the reference computes it.
        let freq = 1.0 / h.rope_base.powf((2 * j) as f32 / h.n_rot as f32);
        let wavelen = (2.0 * std::f64::consts::PI) as f32 / freq;
        if wavelen < high_wavelen {
            1.0
        } else if wavelen > low_wavelen || low_wavelen <= high_wavelen {
            factor
        } else {
            let smooth = (context as f32 / wavelen - low as f32) / (high - low) as f32;
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    });
    Ok(vec![Computed {
        role: Role::RopeFreqs,
        values: values.collect(),
    }])
}

/// Expected tensors, layer by layer.
#[derive(Debug)]
pub struct Expect<'a> {
    h: &'a HParams,
    all: Vec<TensorExpectation>,
}

impl<'a> Expect<'a> {
    /// The tensors outside layers. The output may be absent: tied to the embedding.
    pub fn model(h: &'a HParams) -> Self {
        let n = h.n_embd;
        let all = vec![
            TensorExpectation::whole(Role::TokenEmbd, &[n, h.n_vocab]),
            TensorExpectation::whole(Role::OutputNorm, &[n]),
            TensorExpectation::whole(Role::Output, &[n, h.n_vocab]).optional(),
        ];
        Self { h, all }
    }

    /// The factors of a rotation that is scaled frequency by frequency, in files that have them.
    #[must_use]
    pub fn rope_freqs(mut self) -> Self {
        let freqs = TensorExpectation::whole(Role::RopeFreqs, &[self.h.n_rot / 2]);
        self.all.push(freqs.optional());
        self
    }

    /// The factors of a rotation for short and long contexts, in files that have them.
    #[must_use]
    pub fn rope_factors(mut self) -> Self {
        for role in [Role::RopeFactorsLong, Role::RopeFactorsShort] {
            let factors = TensorExpectation::whole(role, &[self.h.n_rot / 2]);
            self.all.push(factors.optional());
        }
        self
    }

    /// All of them.
    pub fn done(self) -> Vec<TensorExpectation> {
        self.all
    }

    /// A tensor of a layer.
    pub fn add(&mut self, il: usize, role: Role, shape: &[usize]) {
        self.all.push(TensorExpectation::layer(role, il, shape));
    }

    /// A tensor of a layer that the model can do without.
    pub fn maybe(&mut self, il: usize, role: Role, shape: &[usize]) {
        self.all
            .push(TensorExpectation::layer(role, il, shape).optional());
    }

    /// A bias of a layer.
    pub fn bias(&mut self, il: usize, role: Role, shape: &[usize]) {
        self.all.push(TensorExpectation::layer(role, il, shape).bias());
    }

    /// A bias of a layer that the model can do without.
    pub fn maybe_bias(&mut self, il: usize, role: Role, shape: &[usize]) {
        self.all
            .push(TensorExpectation::layer(role, il, shape).bias().optional());
    }

    /// Query, key, value and output matrices with the norm in front.
    pub fn attention(&mut self, il: usize) {
        let h = self.h;
        let n = h.n_embd;
        self.add(il, Role::AttnNorm, &[n]);
        self.add(il, Role::AttnQ, &[n, h.n_embd_q()]);
        self.add(il, Role::AttnK, &[n, h.n_embd_k()]);
        self.add(il, Role::AttnV, &[n, h.n_embd_v()]);
        self.add(il, Role::AttnOutput, &[h.n_head * h.head_dim_v, n]);
    }

    /// Biases of queries, keys and values.
    pub fn qkv_bias(&mut self, il: usize) {
        let h = self.h;
        self.bias(il, Role::AttnQ, &[h.n_embd_q()]);
        self.bias(il, Role::AttnK, &[h.n_embd_k()]);
        self.bias(il, Role::AttnV, &[h.n_embd_v()]);
    }

    /// Biases of attention that some models of the architecture have.
    pub fn maybe_attention_bias(&mut self, il: usize) {
        let h = self.h;
        self.maybe_bias(il, Role::AttnQ, &[h.n_embd_q()]);
        self.maybe_bias(il, Role::AttnK, &[h.n_embd_k()]);
        self.maybe_bias(il, Role::AttnV, &[h.n_embd_v()]);
        self.maybe_bias(il, Role::AttnOutput, &[h.n_embd]);
    }

    /// Norms of every query and key head.
    pub fn qk_norm(&mut self, il: usize) {
        let n = self.h.head_dim_k;
        self.add(il, Role::AttnQNorm, &[n]);
        self.add(il, Role::AttnKNorm, &[n]);
    }

    /// A dense feed-forward network.
    pub fn dense(&mut self, il: usize) {
        let (n, n_ff) = (self.h.n_embd, self.h.n_ff);
        self.add(il, Role::FfnGate, &[n, n_ff]);
        self.add(il, Role::FfnUp, &[n, n_ff]);
        self.add(il, Role::FfnDown, &[n_ff, n]);
    }

    /// A router and its experts, of width `n_ff`.
    pub fn experts(&mut self, il: usize, n_ff: usize) {
        let (n, n_expert) = (self.h.n_embd, self.h.n_expert);
        self.add(il, Role::FfnGateInp, &[n, n_expert]);
        self.add(il, Role::FfnGateExps, &[n, n_ff, n_expert]);
        self.add(il, Role::FfnUpExps, &[n, n_ff, n_expert]);
        self.add(il, Role::FfnDownExps, &[n_ff, n, n_expert]);
    }

    /// What a layer that predicts further tokens has beside what others have. The embedding and the output may be
    /// those of the model.
    pub fn nextn(&mut self, il: usize) {
        let (n, n_vocab) = (self.h.n_embd, self.h.n_vocab);
        self.add(il, Role::NextnEhProj, &[2 * n, n]);
        self.add(il, Role::NextnEnorm, &[n]);
        self.add(il, Role::NextnHnorm, &[n]);
        self.maybe(il, Role::NextnEmbedTokens, &[n, n_vocab]);
        self.maybe(il, Role::NextnHead, &[n, n_vocab]);
        self.maybe(il, Role::NextnHeadNorm, &[n]);
    }

    /// Experts that every token passes, of width `n_ff` together.
    pub fn shared_experts(&mut self, il: usize, n_ff: usize) {
        let n = self.h.n_embd;
        self.add(il, Role::FfnGateShexp, &[n, n_ff]);
        self.add(il, Role::FfnUpShexp, &[n, n_ff]);
        self.add(il, Role::FfnDownShexp, &[n_ff, n]);
    }
}
