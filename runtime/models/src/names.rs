//! Tensor roles and their names in GGUF and in checkpoints.

/// What a tensor is in its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are named as the GGUF tensors")]
pub enum Role {
    TokenEmbd,
    OutputNorm,
    Output,
    AttnNorm,
    AttnQ,
    AttnK,
    AttnV,
    AttnOutput,
    AttnQNorm,
    AttnKNorm,
    FfnNorm,
    FfnGate,
    FfnUp,
    FfnDown,
    FfnGateInp,
    FfnGateExps,
    FfnUpExps,
    FfnDownExps,
}

impl Role {
    /// The full GGUF name: `blk.{layer}.attn_q.weight`, or `output.weight` for roles outside layers.
    pub fn gguf_name(self, _layer: usize) -> String {
        todo!()
    }

    /// The role and layer of a GGUF name; `None` for names that no role has.
    pub fn from_gguf(_name: &str) -> Option<(Self, Option<usize>)> {
        todo!()
    }
}
