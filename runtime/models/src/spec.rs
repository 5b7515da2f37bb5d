//! The closed vocabulary that forward passes are described in. Plain data: the runtime interprets it, the
//! inspector prints it, tests snapshot it.

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

/// Rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Pairing.
    pub kind: RopeKind,
    /// Leading elements of a head that are rotated.
    pub n_rot: usize,
    /// Base of the frequencies.
    pub base: f32,
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
    /// Norm of each query and key head before rotation (weights `attn_q_norm`, `attn_k_norm`).
    pub qk_norm: Option<Norm>,
    /// Rotation; `None` for layers without positions.
    pub rope: Option<Rope>,
    /// Factor of the scores.
    pub scale: f32,
}

/// How a layer mixes positions.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Mixer {
    /// Grouped-query attention.
    Gqa(Gqa),
}

/// The gate of a feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// `silu(gate) * up`.
    Silu,
}

/// How router logits become probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gating {
    /// Softmax over all experts (`expert_gating_func` 1).
    Softmax,
    /// Logistic function of each logit (2).
    Sigmoid,
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
    /// Whether the weights of the chosen are divided by their sum.
    pub norm_weights: bool,
    /// Factor of the weights after that (1 = none).
    pub weights_scale: f32,
    /// The experts' gate.
    pub activation: Activation,
}

/// A dense feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dense {
    /// Width.
    pub n_ff: usize,
    /// Gate.
    pub activation: Activation,
}

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
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
    /// In front of the feed-forward part (weight `ffn_norm`).
    pub norm_mid: Norm,
    /// Feed-forward part.
    pub ffn: Ffn,
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
    /// The layers in order.
    pub layers: Vec<LayerSpec>,
    /// In front of the output (weight `output_norm`).
    pub norm_out: Norm,
}
