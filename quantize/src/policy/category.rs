//! What a tensor is to the mixture rules, told from its name alone.

use gguf_models::component::layer_of;

/// The kinds of tensors that the rules treat alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    /// The output head.
    Output,
    /// Embeddings that are looked up by token.
    TokenEmbd,
    /// Query, key and value in one matrix.
    AttnQkv,
    /// Key and value of latent attention in one matrix.
    AttnKvB,
    /// Value.
    AttnV,
    /// Key.
    AttnK,
    /// Query.
    AttnQ,
    /// Output of attention.
    AttnOutput,
    /// Up projection, of experts too.
    FfnUp,
    /// Gate projection, of experts too.
    FfnGate,
    /// Down projection, of experts too.
    FfnDown,
    /// Everything else.
    Other,
}

/// Fragments of names in order of precedence.
const FRAGMENTS: &[(&str, Category)] = &[
    ("attn_qkv.weight", Category::AttnQkv),
    ("attn_kv_b.weight", Category::AttnKvB),
    ("attn_v.weight", Category::AttnV),
    ("attn_k.weight", Category::AttnK),
    ("attn_q.weight", Category::AttnQ),
    ("attn_output.weight", Category::AttnOutput),
    ("ffn_up", Category::FfnUp),
    ("ffn_gate", Category::FfnGate),
    ("ffn_down", Category::FfnDown),
];

impl Category {
    /// Words for it in plans.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::TokenEmbd => "token_embd",
            Self::AttnQkv => "attn_qkv",
            Self::AttnKvB => "attn_kv_b",
            Self::AttnV => "attn_v",
            Self::AttnK => "attn_k",
            Self::AttnQ => "attn_q",
            Self::AttnOutput => "attn_output",
            Self::FfnUp => "ffn_up",
            Self::FfnGate => "ffn_gate",
            Self::FfnDown => "ffn_down",
            Self::Other => "other",
        }
    }

    /// The category of a tensor's full name.
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "output.weight" => Self::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Self::TokenEmbd,
            _ => FRAGMENTS
                .iter()
                .find(|(f, _)| name.contains(f))
                .map_or(Self::Other, |(_, c)| *c),
        }
    }

    /// Whether the tensor holds values of attention, alone or with others.
    pub(crate) fn is_v_like(self) -> bool {
        matches!(self, Self::AttnV | Self::AttnQkv | Self::AttnKvB)
    }
}

/// The order in which tensors are processed and stored: those outside layers first, then layer by layer,
/// names in byte order. The rules count tensors in this order.
pub(crate) fn order_key(name: &str) -> (Option<usize>, &str) {
    (layer_of(name), name)
}
