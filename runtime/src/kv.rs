//! The KV cache and attention over it.

use gguf_blocks::Cpu;
use gguf_blocks::half_bulk::f32_to_f16;
use gguf_models::spec::{Gqa, Mixer, Mla, Window};

use crate::kernels::attention::{Attention, BLOCK, LANES};

/// What the cache, and attention over it, need to know of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
    /// Query heads.
    pub n_head: usize,
    /// Key and value heads; query head `h` uses `h / (n_head / n_head_kv)`.
    pub n_head_kv: usize,
    /// Elements of a query or key head.
    pub head_dim_k: usize,
    /// Elements of a value head.
    pub head_dim_v: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`; 0 for none.
    pub softcap: f32,
    /// Positions that are seen.
    pub window: Window,
    /// Whether values are the first elements of the keys, so that only keys are stored.
    pub v_in_k: bool,
}

impl From<&Gqa> for Heads {
    fn from(g: &Gqa) -> Self {
        Self {
            n_head: g.n_head,
            n_head_kv: g.n_head_kv,
            head_dim_k: g.head_dim_k,
            head_dim_v: g.head_dim_v,
            scale: g.scale,
            softcap: g.softcap,
            window: g.window,
            v_in_k: false,
        }
    }
}

impl From<&Mla> for Heads {
    fn from(m: &Mla) -> Self {
        let n_rot = m.rope.n_rot;
        let (n_head_kv, head_dim_k, head_dim_v) = if m.absorbed {
            (1, m.kv_lora_rank + n_rot, m.kv_lora_rank)
        } else {
            (m.n_head, m.n_nope + n_rot, m.head_dim_v)
        };
        Self {
            n_head: m.n_head,
            n_head_kv,
            head_dim_k,
            head_dim_v,
            scale: m.scale,
            softcap: 0.0,
            window: Window::All,
            v_in_k: m.absorbed,
        }
    }
}

impl Heads {
    /// Those of a way to mix positions, if it is attention.
    pub fn of(mixer: &Mixer) -> Option<Self> {
        match mixer {
            Mixer::Gqa(g) => Some(g.into()),
            Mixer::Mla(m) => Some(m.into()),
            Mixer::DeltaNet(_) => None,
        }
    }
}

/// Type of cached keys or values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// `f32`.
    F32,
    /// `f16`.
    #[default]
    F16,
    /// `bf16`.
    Bf16,
    /// `q8_0`: blocks of 32 elements of a head.
    Q8_0,
    /// `q4_0`: blocks of 32 elements of a head.
    Q4_0,
}

impl KvType {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::Q8_0, Self::Q4_0];

    /// The name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }
}

impl std::fmt::Display for KvType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|t| t.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
                format!("expected {}, found `{text}`", names.join(", "))
            })
    }
}

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
    pub(crate) heads: Heads,
    /// Positions there is room for in each head.
    pub(crate) n_pos: usize,
    /// Keys: of each [`LANES`] positions, element after element those of all the positions.
    k: Vec<u16>,
    /// Values: position after position.
    v: Vec<u16>,
}

impl LayerCache {
    fn new(heads: Heads, n_seq: usize, n_pos: usize) -> Self {
        let n = n_seq * heads.n_head_kv * n_pos;
        Self {
            heads,
            n_pos,
            k: vec![0; n * heads.head_dim_k],
            v: vec![0; n * heads.head_dim_v],
        }
    }

    /// First position of a head, counted from the start of the cache.
    fn first(&self, seq: usize, head: usize) -> usize {
        (seq * self.heads.n_head_kv + head) * self.n_pos
    }

    /// The keys of block `block` of a head.
    pub(crate) fn k_block(&self, seq: usize, head: usize, block: usize) -> &[u16] {
        let dim = self.heads.head_dim_k;
        &self.k[(self.first(seq, head) + block * BLOCK) * dim..][..BLOCK * dim]
    }

    /// The values of block `block` of a head.
    pub(crate) fn v_block(&self, seq: usize, head: usize, block: usize) -> &[u16] {
        let dim = self.heads.head_dim_v;
        &self.v[(self.first(seq, head) + block * BLOCK) * dim..][..BLOCK * dim]
    }

    fn store(&mut self, seq: usize, pos: usize, k: &[f32], v: &[f32]) {
        let (dim_k, dim_v) = (self.heads.head_dim_k, self.heads.head_dim_v);
        let v = if self.heads.v_in_k { &k[..dim_v] } else { v };
        assert_eq!(
            k.len(),
            self.heads.n_head_kv * dim_k,
            "elements of the keys of a position"
        );
        assert_eq!(
            v.len(),
            self.heads.n_head_kv * dim_v,
            "elements of the values of a position"
        );
        for head in 0..self.heads.n_head_kv {
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
    pub fn new(layers: &[Heads], n_seq: usize, n_ctx: usize) -> Self {
        let n_pos = n_ctx.next_multiple_of(BLOCK);
        let layers = layers
            .iter()
            .map(|&heads| LayerCache::new(heads, n_seq, n_pos))
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
    /// `n_head * head_dim_v` elements a row; `sinks` is one more logit for each query head, without a value.
    /// Parallel over rows and heads.
    pub fn attend(
        &self,
        cpu: Cpu,
        layer: usize,
        q: &[f32],
        sinks: Option<&[f32]>,
        place: &[(u32, u32)],
        out: &mut [f32],
    ) {
        let inside = |&(seq, pos): &(u32, u32)| (seq as usize) < self.n_seq && (pos as usize) < self.n_ctx;
        assert!(place.iter().all(inside), "every position is in the cache");
        Attention {
            cpu,
            cache: &self.layers[layer],
            q,
            sinks,
            place,
        }
        .run(out);
    }
}
