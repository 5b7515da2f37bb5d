//! The KV cache and attention over it.

mod rows;

use std::io;

use gguf_blocks::{Cpu, Format, registry};
use gguf_models::spec::{Gqa, Mixer, Mla, Window};

use crate::kernels::attention::{Attention, GROUP};
use crate::{Error, Result};
pub(crate) use rows::{Rows, RowsOfHead};

/// A cache has room for whole multiples of so many positions.
const ROOM: usize = 32;
const _: () = assert!(ROOM.is_multiple_of(GROUP));

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

    /// The record of the type.
    fn format(self) -> &'static Format {
        registry::by_name(self.name()).expect("the types of the cache are tensor types")
    }

    /// Bytes of `n` elements of a head; `None` if these are not whole blocks.
    fn head_bytes(self, n: usize) -> Option<usize> {
        usize::try_from(self.format().geometry.row_bytes(n as u64)?).ok()
    }
}

impl std::fmt::Display for KvType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|t| t.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
                format!("expected {}, found `{text}`", names.join(", "))
            })
    }
}

/// Types of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvTypes {
    /// Of keys.
    pub k: KvType,
    /// Of values; not used by layers whose values are a part of the keys.
    pub v: KvType,
}

impl KvTypes {
    /// Bytes of the keys and values of one position of one key head.
    fn n_bytes(self, heads: &Heads) -> Option<usize> {
        let k = self.k.head_bytes(heads.head_dim_k)?;
        if heads.v_in_k {
            return Some(k);
        }
        k.checked_add(self.v.head_bytes(heads.head_dim_v)?)
    }

    /// Refuses types whose blocks don't divide a head of layer `layer`.
    pub(crate) fn check(self, layer: usize, heads: &Heads) -> Result<()> {
        let check = |option, what, kind: KvType, len| {
            if kind.head_bytes(len).is_some() {
                return Ok(());
            }
            let block = kind.format().geometry.block_elems;
            Err(Error::Settings(
                format!(
                    "`{option} {kind}`: expected heads of whole blocks of {block} elements, found {what} of {len} \
                     in layer {layer}; use `{option} f16`"
                )
                .into(),
            ))
        };
        check("-ctk", "keys", self.k, heads.head_dim_k)?;
        if heads.v_in_k {
            return Ok(());
        }
        check("-ctv", "values", self.v, heads.head_dim_v)
    }
}

/// Bytes of a cache with room for `n_seq` sequences of `n_ctx` positions for each of `layers`; `None` on overflow.
pub(crate) fn n_bytes(layers: &[Heads], types: KvTypes, n_seq: usize, n_ctx: usize) -> Option<u64> {
    let per_pos = layers.iter().try_fold(0u64, |sum, heads| {
        let head = types.n_bytes(heads)? as u64;
        sum.checked_add(head.checked_mul(heads.n_head_kv as u64)?)
    })?;
    let n_pos = n_ctx.checked_next_multiple_of(ROOM)? as u64;
    per_pos.checked_mul(n_pos)?.checked_mul(n_seq as u64)
}

/// Keys and values of layers and sequences.
#[derive(Debug)]
pub struct KvCache {
    /// Number of the first layer that is held.
    first: usize,
    layers: Vec<LayerCache>,
    n_seq: usize,
    n_ctx: usize,
}

/// One layer's part.
#[derive(Debug)]
pub(crate) struct LayerCache {
    pub(crate) heads: Heads,
    pub(crate) k: Rows,
    /// None where values are a part of the keys.
    pub(crate) v: Option<Rows>,
}

impl LayerCache {
    fn new(heads: Heads, types: KvTypes, n_seq: usize, n_pos: usize) -> Self {
        let n_heads = n_seq * heads.n_head_kv;
        let v = (!heads.v_in_k).then(|| Rows::new(types.v, heads.head_dim_v, n_heads, n_pos));
        Self {
            heads,
            k: Rows::new(types.k, heads.head_dim_k, n_heads, n_pos),
            v,
        }
    }

    /// Keys, and values if they are stored.
    fn parts(&self) -> impl Iterator<Item = &Rows> {
        std::iter::once(&self.k).chain(&self.v)
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Rows> {
        std::iter::once(&mut self.k).chain(&mut self.v)
    }
}

impl KvCache {
    /// Room for `n_seq` sequences of `n_ctx` positions for each of `layers`, whose heads are whole blocks of
    /// `types`.
    pub fn new(layers: &[Heads], types: KvTypes, n_seq: usize, n_ctx: usize) -> Self {
        let n_pos = n_ctx.next_multiple_of(ROOM);
        let layers = layers
            .iter()
            .map(|&heads| LayerCache::new(heads, types, n_seq, n_pos))
            .collect();
        Self {
            first: 0,
            layers,
            n_seq,
            n_ctx,
        }
    }

    /// The same for the layers from number `first` on.
    pub(crate) fn from_layer(
        first: usize,
        layers: &[Heads],
        types: KvTypes,
        n_seq: usize,
        n_ctx: usize,
    ) -> Self {
        Self {
            first,
            ..Self::new(layers, types, n_seq, n_ctx)
        }
    }

    /// Bytes taken.
    pub fn n_bytes(&self) -> usize {
        let parts = self.layers.iter().flat_map(LayerCache::parts);
        parts.map(Rows::n_bytes).sum()
    }

    /// Positions of a sequence.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Stores the keys (`n_head_kv * head_dim_k` elements, rotated) and values of one position; no values where
    /// they are a part of the keys.
    pub fn store(&mut self, layer: usize, seq: usize, pos: usize, k: &[f32], v: &[f32]) {
        let position = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        self.store_rows(layer, &[(position(seq), position(pos))], k, v);
    }

    /// Stores the keys and values of rows, each of which belongs to a `(sequence, position)`. Parallel over heads.
    pub fn store_rows(&mut self, layer: usize, place: &[(u32, u32)], k: &[f32], v: &[f32]) {
        self.check_places(place);
        let layer = &mut self.layers[layer - self.first];
        layer.k.store(place, layer.heads.n_head_kv, k);
        match &mut layer.v {
            Some(rows) => rows.store(place, layer.heads.n_head_kv, v),
            None => assert!(v.is_empty(), "values that are a part of the keys are not stored"),
        }
    }

    /// Causal attention: query row `t` (`n_head * head_dim_k` elements, rotated) belongs to
    /// `place[t] = (sequence, position)` and sees the positions of the layer's window up to its own. `out` has
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
        self.check_places(place);
        Attention {
            cpu,
            cache: &self.layers[layer - self.first],
            q,
            sinks,
            place,
        }
        .run(out);
    }

    /// Gives sequence `to` the first `n` positions of sequence `from`.
    pub fn copy(&mut self, from: usize, to: usize, n: usize) {
        assert!(
            from.max(to) < self.n_seq && n <= self.n_ctx,
            "{n} positions of sequences {from} and {to} are in the cache"
        );
        for layer in &mut self.layers {
            let n_head_kv = layer.heads.n_head_kv;
            for rows in layer.parts_mut() {
                for head in 0..n_head_kv {
                    rows.copy(from * n_head_kv + head, to * n_head_kv + head, n);
                }
            }
        }
    }

    pub(crate) fn layers(&self) -> &[LayerCache] {
        &self.layers
    }

    /// Hands out the first `n` positions of a sequence: of each layer the keys, then the stored values, head after
    /// head, position after position.
    pub(crate) fn save(
        &self,
        seq: usize,
        n: usize,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for layer in &self.layers {
            let heads = seq * layer.heads.n_head_kv..(seq + 1) * layer.heads.n_head_kv;
            for rows in layer.parts() {
                heads.clone().try_for_each(|head| rows.save(head, n, sink))?;
            }
        }
        Ok(())
    }

    /// Takes what [`KvCache::save`] handed out.
    pub(crate) fn load(
        &mut self,
        seq: usize,
        n: usize,
        source: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for layer in &mut self.layers {
            let heads = seq * layer.heads.n_head_kv..(seq + 1) * layer.heads.n_head_kv;
            for rows in layer.parts_mut() {
                heads.clone().try_for_each(|head| rows.load(head, n, source))?;
            }
        }
        Ok(())
    }

    fn check_places(&self, place: &[(u32, u32)]) {
        for &(seq, pos) in place {
            assert!(
                (seq as usize) < self.n_seq && (pos as usize) < self.n_ctx,
                "position {pos} of sequence {seq} is in the cache"
            );
        }
    }
}
