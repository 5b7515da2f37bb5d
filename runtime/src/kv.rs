//! The KV cache and attention over it.

use gguf_blocks::Cpu;
use gguf_blocks::half_bulk::f32_to_f16;
use gguf_models::spec::Gqa;

use crate::kernels::attention::{Attention, BLOCK, LANES};

/// Keys and values of all layers and sequences, f16.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    n_seq: usize,
    n_ctx: usize,
}

/// One layer's part. Sequences follow each other, in each the heads, in each the positions up to a whole
/// number of [`BLOCK`]s.
#[derive(Debug)]
pub(crate) struct LayerCache {
    pub(crate) gqa: Gqa,
    /// Positions there is room for in each head.
    pub(crate) n_pos: usize,
    /// Keys: of each [`LANES`] positions, element after element those of all the positions.
    k: Vec<u16>,
    /// Values: position after position.
    v: Vec<u16>,
}

impl LayerCache {
    fn new(gqa: Gqa, n_seq: usize, n_pos: usize) -> Self {
        let n = n_seq * gqa.n_head_kv * n_pos;
        Self {
            gqa,
            n_pos,
            k: vec![0; n * gqa.head_dim_k],
            v: vec![0; n * gqa.head_dim_v],
        }
    }

    /// First position of a head, counted from the start of the cache.
    fn first(&self, seq: usize, head: usize) -> usize {
        (seq * self.gqa.n_head_kv + head) * self.n_pos
    }

    /// The keys of block `block` of a head.
    pub(crate) fn k_block(&self, seq: usize, head: usize, block: usize) -> &[u16] {
        let dim = self.gqa.head_dim_k;
        &self.k[(self.first(seq, head) + block * BLOCK) * dim..][..BLOCK * dim]
    }

    /// The values of block `block` of a head.
    pub(crate) fn v_block(&self, seq: usize, head: usize, block: usize) -> &[u16] {
        let dim = self.gqa.head_dim_v;
        &self.v[(self.first(seq, head) + block * BLOCK) * dim..][..BLOCK * dim]
    }

    fn store(&mut self, seq: usize, pos: usize, k: &[f32], v: &[f32]) {
        let (dim_k, dim_v) = (self.gqa.head_dim_k, self.gqa.head_dim_v);
        assert_eq!(
            k.len(),
            self.gqa.n_head_kv * dim_k,
            "elements of the keys of a position"
        );
        assert_eq!(
            v.len(),
            self.gqa.n_head_kv * dim_v,
            "elements of the values of a position"
        );
        for head in 0..self.gqa.n_head_kv {
            let first = self.first(seq, head);
            let lanes = &mut self.k[(first + pos / LANES * LANES) * dim_k..][..LANES * dim_k];
            for (lanes, k) in lanes
                .as_chunks_mut::<LANES>()
                .0
                .iter_mut()
                .zip(&k[head * dim_k..])
            {
                lanes[pos % LANES] = f32_to_f16(*k);
            }
            for (out, v) in self.v[(first + pos) * dim_v..][..dim_v]
                .iter_mut()
                .zip(&v[head * dim_v..])
            {
                *out = f32_to_f16(*v);
            }
        }
    }
}

impl KvCache {
    /// Room for `n_seq` sequences of `n_ctx` positions for each of `layers`.
    pub fn new(layers: &[Gqa], n_seq: usize, n_ctx: usize) -> Self {
        let n_pos = n_ctx.next_multiple_of(BLOCK);
        let layers = layers
            .iter()
            .map(|&gqa| LayerCache::new(gqa, n_seq, n_pos))
            .collect();
        Self { layers, n_seq, n_ctx }
    }

    /// Bytes taken.
    pub fn n_bytes(&self) -> usize {
        self.layers
            .iter()
            .map(|l| size_of_val(&*l.k) + size_of_val(&*l.v))
            .sum()
    }

    /// Positions of a sequence.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Stores the keys (`n_head_kv * head_dim_k` elements, rotated) and values of one position.
    pub fn store(&mut self, layer: usize, seq: usize, pos: usize, k: &[f32], v: &[f32]) {
        assert!(
            seq < self.n_seq && pos < self.n_ctx,
            "position {pos} of sequence {seq} is in the cache"
        );
        self.layers[layer].store(seq, pos, k, v);
    }

    /// Causal attention: query row `t` (`n_head * head_dim_k` elements, rotated) belongs to
    /// `place[t] = (sequence, position)` and sees positions `0 ..= position` of it. `out` has
    /// `n_head * head_dim_v` elements a row. Parallel over rows and heads.
    pub fn attend(&self, cpu: Cpu, layer: usize, q: &[f32], place: &[(u32, u32)], out: &mut [f32]) {
        let inside = |&(seq, pos): &(u32, u32)| (seq as usize) < self.n_seq && (pos as usize) < self.n_ctx;
        assert!(place.iter().all(inside), "every position is in the cache");
        Attention {
            cpu,
            cache: &self.layers[layer],
            q,
            place,
        }
        .run(out);
    }
}
