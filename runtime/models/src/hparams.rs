//! Typed hyper-parameters.

use gguf::Metadata;

use crate::Result;

/// What every architecture's description is computed from. Read from GGUF metadata or from a Hugging Face
/// config by the rows of `arch`.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are named as the GGUF keys")]
pub struct HParams {
    pub n_vocab: usize,
    pub n_ctx_train: usize,
    pub n_embd: usize,
    pub n_layer: usize,
    pub n_ff: usize,
    pub n_head: usize,
    pub n_head_kv: usize,
    pub head_dim_k: usize,
    pub head_dim_v: usize,
    pub rms_eps: f32,
    pub rope_base: f32,
    pub n_rot: usize,
    pub n_expert: usize,
    pub n_expert_used: usize,
    pub n_ff_exp: usize,
    pub gating: Option<u32>,
    pub expert_weights_norm: Option<bool>,
    pub expert_weights_scale: f32,
}

impl HParams {
    /// Reads `{arch}.*` keys. `n_vocab` is the length of `tokenizer.ggml.tokens`, else `{arch}.vocab_size`.
    pub fn from_gguf(_arch: &str, _metadata: &Metadata) -> Result<Self> {
        todo!()
    }
}
