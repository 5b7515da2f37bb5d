//! The large parts of a model, told from the names of its tensors alone, so that they are known for every
//! architecture, also one that this build does not describe.

/// A part of a model that sizes are given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// Token embeddings.
    Embedding,
    /// The matrix in front of the logits.
    Output,
    /// Attention, in any form.
    Attention,
    /// Recurrent mixers: state space, delta net, short convolution, RWKV.
    Recurrent,
    /// Feed-forward parts that every token passes.
    DenseFfn,
    /// Experts that a router chooses from.
    Experts,
    /// Experts that every token passes.
    SharedExperts,
    /// What chooses the experts.
    Router,
    /// Norms.
    Norm,
    /// Layers that predict further tokens.
    NextN,
    /// Encoders of images and sound, and what connects them.
    Vision,
    /// Everything else.
    Other,
}

impl Component {
    /// All parts, in the order of a table.
    pub const ALL: [Self; 12] = [
        Self::Embedding,
        Self::Output,
        Self::Attention,
        Self::Recurrent,
        Self::DenseFfn,
        Self::Experts,
        Self::SharedExperts,
        Self::Router,
        Self::Norm,
        Self::NextN,
        Self::Vision,
        Self::Other,
    ];

    /// The name for tables: `shared experts`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Output => "output",
            Self::Attention => "attention",
            Self::Recurrent => "recurrent",
            Self::DenseFfn => "dense FFN",
            Self::Experts => "experts",
            Self::SharedExperts => "shared experts",
            Self::Router => "router",
            Self::Norm => "norms",
            Self::NextN => "nextn",
            Self::Vision => "vision",
            Self::Other => "other",
        }
    }

    /// The part that a tensor belongs to.
    pub fn of(name: &str) -> Self {
        match split_layer(name) {
            Some((_, stem)) => Self::in_layer(stem),
            None => Self::outside(name),
        }
    }

    fn in_layer(stem: &str) -> Self {
        let has = |part: &str| stem.contains(part);
        // The experts of the first Mixtral files have a tensor each: `ffn_gate.3.weight`.
        let numbered = || {
            stem.split('.')
                .nth(1)
                .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
        };
        if stem.starts_with("nextn.") {
            Self::NextN
        } else if has("ffn_gate_inp") || has("exp_probs_b") {
            Self::Router
        } else if has("norm") {
            Self::Norm
        } else if has("shexp") {
            Self::SharedExperts
        } else if has("exps") || (stem.starts_with("ffn_") && numbered()) {
            Self::Experts
        } else if ["ssm", "shortconv", "time_mix", "channel_mix"]
            .iter()
            .any(|p| stem.starts_with(p))
        {
            Self::Recurrent
        } else if stem.starts_with("ffn") {
            Self::DenseFfn
        } else if stem.starts_with("attn") || stem.starts_with("indexer") || stem.starts_with("cross_attn") {
            Self::Attention
        } else {
            Self::Other
        }
    }

    fn outside(name: &str) -> Self {
        let starts = |parts: &[&str]| parts.iter().any(|p| name.starts_with(p));
        if starts(&["v.", "a.", "mm."]) {
            Self::Vision
        } else if name.contains("norm") {
            Self::Norm
        } else if starts(&[
            "token_embd",
            "per_layer_token_embd",
            "token_types",
            "position_embd",
        ]) {
            Self::Embedding
        } else if starts(&["output"]) {
            Self::Output
        } else {
            Self::Other
        }
    }
}

/// The number of a layer and the rest of the name: `blk.3.attn_q.weight` as 3, `attn_q.weight`.
pub fn split_layer(name: &str) -> Option<(u32, &str)> {
    let (number, stem) = name.strip_prefix("blk.")?.split_once('.')?;
    let is_number = number.bytes().all(|b| b.is_ascii_digit());
    Some((number.parse().ok().filter(|_| is_number)?, stem))
}

/// The number of the layer that a tensor belongs to by its name: 3 for `blk.3.attn_q.weight`.
pub fn layer_of(name: &str) -> Option<usize> {
    split_layer(name).map(|(layer, _)| layer as usize)
}

#[cfg(test)]
mod tests {
    use super::{Component, layer_of, split_layer};

    #[test]
    fn names_of_all_kinds_find_their_part() {
        for (name, part) in [
            ("token_embd.weight", Component::Embedding),
            ("output.weight", Component::Output),
            ("output_norm.weight", Component::Norm),
            ("blk.0.attn_kv_a_mqa.weight", Component::Attention),
            ("blk.0.attn_q_a_norm.weight", Component::Norm),
            ("blk.12.ffn_gate_exps.weight", Component::Experts),
            ("blk.12.ffn_gate.3.weight", Component::Experts),
            ("blk.12.ffn_gate.weight", Component::DenseFfn),
            ("blk.12.ffn_down_shexp.weight", Component::SharedExperts),
            ("blk.12.ffn_gate_inp.weight", Component::Router),
            ("blk.12.exp_probs_b.bias", Component::Router),
            ("blk.3.ssm_in.weight", Component::Recurrent),
            ("blk.61.nextn.eh_proj.weight", Component::NextN),
            ("v.blk.0.attn_q.weight", Component::Vision),
            ("rope_freqs.weight", Component::Other),
        ] {
            assert_eq!(Component::of(name), part, "{name}");
        }
        assert_eq!(split_layer("blk.31.attn_q.weight"), Some((31, "attn_q.weight")));
        assert_eq!(layer_of("blk.31.attn_q.weight"), Some(31));
        for name in [
            "blk.x.attn_q.weight",
            "blk.+1.attn_q.weight",
            "blk.1",
            "token_embd.weight",
        ] {
            assert_eq!(split_layer(name), None, "{name}");
        }
    }
}
