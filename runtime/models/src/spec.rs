//! The closed vocabulary that forward passes are described in. Plain data: the runtime interprets it, the
//! inspector prints it, tests snapshot it.
//!
//! What stands in a file beside a matrix (a bias, a factor of its product) is part of the product wherever a
//! matrix is named here, and needs no word of its own.

use crate::{Error, Result, Role};

/// Root-mean-square norm: `y = x / sqrt(mean(x^2) + eps) * weight`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Added to the mean square.
    pub eps: f32,
}

/// Which elements of a head rotary embedding pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeKind {
    /// Pairs `(2i, 2i + 1)`.
    Norm,
    /// Pairs `(i, i + n_rot / 2)`.
    Neox,
}

/// Tensors of factors, one for each pair, that angles are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeFactors {
    /// None.
    One,
    /// `rope_freqs`, where the file has it.
    Freqs,
    /// `rope_factors_short` for contexts up to `n_ctx_orig` positions, `rope_factors_long` for longer ones, where the
    /// file has them.
    ShortLong {
        /// Positions of the training.
        n_ctx_orig: usize,
    },
}

/// `YaRN`: pairs that turn often within the training's context keep their angle, those that turn rarely have it
/// scaled, with a ramp between the two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Share of the unscaled angle at the beginning of the ramp.
    pub ext_factor: f32,
    /// First pair of the ramp; those before it keep their angle.
    pub low: f32,
    /// Last pair of the ramp; those behind it are scaled.
    pub high: f32,
}

/// Rotary position embedding: pair `i` of position `pos` is turned by `pos * base^(-2i / n_rot) * scale`, but for
/// what factors and [`Yarn`] change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Pairing.
    pub kind: RopeKind,
    /// Leading elements of a head that are rotated.
    pub n_rot: usize,
    /// Base of the frequencies.
    pub base: f32,
    /// Factor of all angles (1 = none).
    pub scale: f32,
    /// Factors of single pairs.
    pub factors: RopeFactors,
    /// Scaling by frequency.
    pub yarn: Option<Yarn>,
    /// Factor of the rotated elements (1 = none).
    pub magnitude: f32,
}

/// Which positions a query sees beside that it sees none behind its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// All.
    All,
    /// Its own and the `n - 1` before it.
    Last(usize),
    /// Those of its own chunk; chunks of `n` positions are counted from position 0.
    Chunk(usize),
}

impl Window {
    /// The first position that a query at `pos` sees.
    pub fn first(self, pos: usize) -> usize {
        match self {
            Self::All => 0,
            Self::Last(n) => (pos + 1).saturating_sub(n),
            Self::Chunk(n) => pos / n.max(1) * n,
        }
    }
}

/// Queries grow with their position: `q *= 1 + scale * ln(floor((pos + offset) / length) + 1)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// Factor of the logarithm.
    pub scale: f32,
    /// Positions of a step.
    pub length: usize,
    /// Added to the position.
    pub offset: usize,
}

/// A norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QkNorm {
    /// The norm.
    pub norm: Norm,
    /// What is one row to it.
    pub over: NormOver,
    /// Whether it comes behind the rotation rather than in front.
    pub after_rope: bool,
    /// Where its weights are.
    pub weights: QkNormWeights,
}

/// The weights of a norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNormWeights {
    /// `attn_q_norm` and `attn_k_norm`.
    Present,
    /// The same, but a file without them has no such norm.
    IfPresent,
    /// All are 1.
    Ones,
}

/// What is one row to a norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOver {
    /// Each head.
    Head,
    /// All heads together.
    Heads,
}

/// Grouped-query attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gqa {
    /// Query heads.
    pub n_head: usize,
    /// Key and value heads; query head `h` uses `h / (n_head / n_head_kv)`.
    pub n_head_kv: usize,
    /// Elements of a query or key head.
    pub head_dim_k: usize,
    /// Elements of a value head.
    pub head_dim_v: usize,
    /// Whether one matrix (`attn_qkv`) has the rows of queries, keys and values, in this order.
    pub fused: bool,
    /// Whether the query matrix has, behind the elements of each head, as many gates: attention's result is
    /// multiplied with their logistic function in front of the output matrix.
    pub gated: bool,
    /// Norm of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// Rotation; `None` for layers without positions.
    pub rope: Option<Rope>,
    /// Factor of the scores.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`; 0 for none.
    pub softcap: f32,
    /// Positions that are seen.
    pub window: Window,
    /// Whether the softmax has one more logit for each head, without a value (`attn_sinks`).
    pub sinks: bool,
    /// Growth of queries.
    pub temperature: Option<Temperature>,
}

/// Latent attention: all heads' keys and values are made of one vector, and a part of the keys with positions is
/// the same for all heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mla {
    /// Heads.
    pub n_head: usize,
    /// Elements of a query or key head without position.
    pub n_nope: usize,
    /// Elements of the latent vector.
    pub kv_lora_rank: usize,
    /// Elements of a value head.
    pub head_dim_v: usize,
    /// Whether queries are made of a latent vector too (`attn_q_a`, `attn_q_b`), of this many elements.
    pub q_lora_rank: Option<usize>,
    /// Norm of the latent vectors.
    pub norm: Norm,
    /// Rotation of the elements with positions, `rope.n_rot` of each head.
    pub rope: Rope,
    /// Factor of the scores.
    pub scale: f32,
    /// Growth of queries.
    pub temperature: Option<Temperature>,
    /// Whether queries meet the latent vector itself (`attn_k_b`, `attn_v_b`) rather than keys and values made of it
    /// (`attn_kv_b`).
    pub absorbed: bool,
}

/// Gated delta net: a short convolution, then a state for each head that decays and learns a value for a key at
/// every position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaNet {
    /// Heads of queries and keys; `n_head_v / n_head_k` value heads share one.
    pub n_head_k: usize,
    /// Heads of values, each with a state of `head_dim_k * head_dim_v`.
    pub n_head_v: usize,
    /// Elements of a query or key head.
    pub head_dim_k: usize,
    /// Elements of a value head.
    pub head_dim_v: usize,
    /// Positions that the convolution sees.
    pub n_conv: usize,
    /// Norm of each head's result (weight `ssm_norm`).
    pub norm: Norm,
}

impl DeltaNet {
    /// Elements of queries, keys and values of a position.
    pub fn n_qkv(&self) -> usize {
        2 * self.n_head_k * self.head_dim_k + self.n_inner()
    }

    /// Elements of the values of a position.
    pub fn n_inner(&self) -> usize {
        self.n_head_v * self.head_dim_v
    }
}

/// How a layer mixes positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mixer {
    /// Grouped-query attention.
    Gqa(Gqa),
    /// Latent attention.
    Mla(Mla),
    /// Gated delta net.
    DeltaNet(DeltaNet),
}

/// The gate of a feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `silu(gate) * up`.
    Silu,
    /// `gelu(gate) * up`, by the tangent.
    Gelu,
    /// `g * sigmoid(alpha * g) * (u + 1)` with `g = min(gate, limit)`, `u = clamp(up, -limit, limit)`.
    SwigluClamped {
        /// Factor in the logistic function.
        alpha: f32,
        /// Bound of gates and ups.
        limit: f32,
    },
}

/// How router logits become probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts (`expert_gating_func` 1).
    Softmax,
    /// Logistic function of each logit (2).
    Sigmoid,
    /// Softmax over the chosen, which are those of the largest logits (3).
    SoftmaxOfChosen,
    /// Square root of the softplus of each logit (4).
    SqrtSoftplus,
}

/// Experts in groups, of which only some can be chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Groups of neighbours.
    pub n: usize,
    /// Groups that experts are chosen from.
    pub n_used: usize,
    /// Largest experts of a group whose sum is the group's score.
    pub n_scored: usize,
}

/// Experts that every token passes, as one network (`ffn_*_shexp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExperts {
    /// Their width together.
    pub n_ff: usize,
    /// Whether the result is multiplied with the logistic function of a product (`ffn_gate_inp_shexp`).
    pub gated: bool,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moe {
    /// Experts of the layer.
    pub n_expert: usize,
    /// Experts used for a token.
    pub n_used: usize,
    /// Width of an expert.
    pub n_ff: usize,
    /// Probabilities from logits.
    pub gating: Gating,
    /// Groups to choose from.
    pub groups: Option<ExpertGroups>,
    /// Whether the weights of the chosen are divided by their sum.
    pub norm_weights: bool,
    /// Factor of the weights after that (1 = none).
    pub weights_scale: f32,
    /// Whether an expert's input is multiplied with its weight rather than its result.
    pub weighted_input: bool,
    /// The experts' gate.
    pub activation: Activation,
    /// Experts that every token passes.
    pub shared: Option<SharedExperts>,
}

/// A dense feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dense {
    /// Width.
    pub n_ff: usize,
    /// Gate.
    pub activation: Activation,
    /// Whether one matrix (`ffn_up`) has the rows of gates and ups, in this order.
    pub fused: bool,
}

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ffn {
    /// One network for all tokens.
    Dense(Dense),
    /// A few of many networks for each token.
    Moe(Moe),
}

/// One layer: `h += mixer(norm_in(h)); h += ffn(norm_mid(h))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSpec {
    /// In front of the mixer (weight `attn_norm`).
    pub norm_in: Norm,
    /// Mixing of positions.
    pub mixer: Mixer,
    /// Of the mixer's result (weight `post_attention_norm`).
    pub norm_mixed: Option<Norm>,
    /// In front of the feed-forward part.
    pub norm_mid: Norm,
    /// The weight of `norm_mid`: `ffn_norm`, or `post_attention_norm` in some architectures.
    pub norm_mid_role: Role,
    /// Feed-forward part.
    pub ffn: Ffn,
    /// Of the feed-forward part's result (weight `post_ffw_norm`).
    pub norm_out: Option<Norm>,
}

/// A whole model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Elements of a hidden state.
    pub n_embd: usize,
    /// Rows of the embedding.
    pub n_vocab: usize,
    /// Longest context of the training.
    pub n_ctx_train: usize,
    /// Factor of embeddings (1 = none).
    pub embedding_scale: f32,
    /// Factor of what a layer's parts add to the hidden state (1 = none).
    pub residual_scale: f32,
    /// The layers in order.
    pub layers: Vec<LayerSpec>,
    /// In front of the output (weight `output_norm`).
    pub norm_out: Norm,
    /// Factor of logits (1 = none).
    pub logit_scale: f32,
    /// Logits become `cap * tanh(logit / cap)`; 0 for none.
    pub logit_softcap: f32,
}

impl ModelSpec {
    /// Checks that no part of a layer is empty and that sizes fit each other.
    ///
    /// # Errors
    /// The first that does not; it names the architecture and the layer.
    pub(crate) fn check(&self, arch: &str) -> Result<()> {
        for (il, layer) in self.layers.iter().enumerate() {
            let at_least_one = |what: &str, sizes: &[usize]| {
                if sizes.iter().all(|n| *n > 0) {
                    return Ok(());
                }
                let object = format!("metadata of architecture `{arch}`: {what} of layer {il}");
                Err(Error::mismatch(
                    object,
                    "sizes of at least 1",
                    format!("{sizes:?}"),
                ))
            };
            match layer.mixer {
                Mixer::Gqa(g) => g.check(arch, il)?,
                Mixer::Mla(m) => at_least_one(
                    "keys without position, latent vector, values and heads",
                    &[m.n_nope, m.kv_lora_rank, m.head_dim_v, m.n_head],
                )?,
                Mixer::DeltaNet(d) => {
                    at_least_one(
                        "heads, their elements and the convolution",
                        &[d.n_head_k, d.n_head_v, d.head_dim_k, d.head_dim_v, d.n_conv],
                    )?;
                    if !d.n_head_v.is_multiple_of(d.n_head_k) {
                        return Err(Error::mismatch(
                            format!("metadata key `{arch}.ssm.time_step_rank`"),
                            format!("a multiple of the group count {}", d.n_head_k),
                            d.n_head_v,
                        ));
                    }
                }
            }
            match layer.ffn {
                Ffn::Dense(d) => at_least_one("the feed-forward width", &[d.n_ff])?,
                Ffn::Moe(m) => at_least_one(
                    "experts, experts used and their width",
                    &[m.n_expert, m.n_used, m.n_ff],
                )?,
            }
        }
        Ok(())
    }
}

impl Gqa {
    /// Gates are multiplied with values, so both have one length.
    fn check(&self, arch: &str, il: usize) -> Result<()> {
        if self.gated && self.head_dim_k != self.head_dim_v {
            return Err(Error::mismatch(
                format!("metadata key `{arch}.attention.value_length`, layer {il}"),
                format!("the key length {}", self.head_dim_k),
                self.head_dim_v,
            ));
        }
        Ok(())
    }
}
