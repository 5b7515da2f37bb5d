//! The KV cache and attention over it.

use gguf_blocks::Cpu;
use gguf_models::spec::Gqa;

/// Keys and values of all layers and sequences, f16.
#[derive(Debug)]
pub struct KvCache {}

impl KvCache {
    /// Room for `n_seq` sequences of `n_ctx` positions for each of `layers`.
    pub fn new(_layers: &[Gqa], _n_seq: usize, _n_ctx: usize) -> Self {
        todo!()
    }

    /// Bytes taken.
    pub fn n_bytes(&self) -> usize {
        todo!()
    }

    /// Positions of a sequence.
    pub fn n_ctx(&self) -> usize {
        todo!()
    }

    /// Stores the keys (`n_head_kv * head_dim_k` elements, rotated) and values of one position.
    pub fn store(&mut self, _layer: usize, _seq: usize, _pos: usize, _k: &[f32], _v: &[f32]) {
        todo!()
    }

    /// Causal attention: query row `t` (`n_head * head_dim_k` elements, rotated) belongs to
    /// `place[t] = (sequence, position)` and sees positions `0 ..= position` of it. `out` has
    /// `n_head * head_dim_v` elements a row. Parallel over rows and heads.
    pub fn attend(&self, _cpu: Cpu, _layer: usize, _q: &[f32], _place: &[(u32, u32)], _out: &mut [f32]) {
        todo!()
    }
}
