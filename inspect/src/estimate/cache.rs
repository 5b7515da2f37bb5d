//! What a context keeps of past tokens: keys and values of attention layers, states of recurrent ones.
//!
//! The layout is llama.cpp's. A sequence has `n_ctx / n_seq` cells, rounded up to 256; a layer with a window has
//! `window + n_ubatch` of them, rounded up likewise, where that is fewer. A cell is a row of keys and one of values,
//! each of `head_count_kv` heads. Compressed attention (MLA) has a single head whose value is the front of its key,
//! and keeps only the key. A state is F32, one a sequence, whatever the context.

use gguf_blocks::Format;
use gguf_cli::{Failure, Result};
use gguf_models::Attributes;
use gguf_models::attributes::{PerLayer, WindowPattern};
use serde::Serialize;

use super::weights::Layer;
use super::{MAX_NUMBER, Run, product, sum};

/// Cells are allotted in multiples of this.
const CELLS: u64 = 256;
/// Bytes of an element of a state.
const STATE_BYTES: u64 = 4;

/// Sums in bytes.
#[derive(Debug, Default, Serialize)]
pub(super) struct Cache {
    /// Cells of a sequence.
    pub(super) cells: u64,
    /// Cells of a sequence in layers with a window.
    pub(super) window_cells: Option<u64>,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) states: u64,
    pub(super) total: u64,
    #[serde(skip)]
    pub(super) layers: Vec<LayerCache>,
}

/// What one layer keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct LayerCache {
    pub(super) head_count_kv: u64,
    pub(super) key_length: u64,
    /// 0 where the value is a part of the key.
    pub(super) value_length: u64,
    /// Cells of all sequences.
    pub(super) cells: u64,
    pub(super) window: bool,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) state: u64,
}

impl Cache {
    /// The caches of the layers; what metadata do not tell is left out with a line in `left_out`.
    pub(super) fn of(
        a: Attributes<'_>,
        layers: &[Layer],
        run: &Run,
        left_out: &mut Vec<String>,
    ) -> Result<Self> {
        let cells = round_up(run.n_ctx.div_ceil(run.n_seq))?;
        let windows = Windows::of(a, cells, run, left_out)?;
        let state = product("the states", &[state(a, left_out, layers)?, run.n_seq])?;
        let heads = a.head_count_kv();
        if heads.is_none() && layers.iter().any(|l| l.keys || !l.recurrent) {
            left_out.push(format!(
                "keys and values: {}",
                a.absence("attention.head_count_kv")
            ));
        }
        let n_attending = attending(a, layers.len());
        let mut cache = Self {
            cells,
            window_cells: windows.as_ref().map(|w| w.cells),
            ..Self::default()
        };
        for (i, layer) in layers.iter().enumerate() {
            let mut one = LayerCache::default();
            let n_heads = head_count(heads.as_ref(), i, left_out);
            if n_heads > 0 && i < n_attending.with_cache && (layer.keys || !layer.recurrent) {
                let window = windows.as_ref().filter(|w| w.pattern.has_window(i));
                one = attention(
                    a,
                    n_heads,
                    window.map_or(cells, |w| w.cells),
                    window.is_some(),
                    run,
                    left_out,
                )?;
            }
            if i < n_attending.computed && (layer.recurrent || (!layer.seen && n_heads == 0)) {
                one.state = state;
            }
            cache.keys = sum("the cache", [cache.keys, one.keys])?;
            cache.values = sum("the cache", [cache.values, one.values])?;
            cache.states = sum("the states", [cache.states, one.state])?;
            cache.layers.push(one);
        }
        if cache.layers.iter().all(|l| !l.window) {
            cache.window_cells = None;
        }
        cache.total = sum("the cache", [cache.keys, cache.values, cache.states])?;
        Ok(cache)
    }
}

/// How many layers, from the first, take part.
struct Attending {
    /// Those that the usual pass computes.
    computed: usize,
    /// Those that do not use the cache of an earlier layer.
    with_cache: usize,
}

fn attending(a: Attributes<'_>, n_layers: usize) -> Attending {
    let less = |n: u64| n_layers.saturating_sub(usize::try_from(n).unwrap_or(usize::MAX));
    let computed = less(a.nextn_layers());
    let shared = a.uint("attention.shared_kv_layers").unwrap_or(0);
    Attending {
        computed,
        with_cache: computed.min(less(shared)),
    }
}

fn head_count(heads: Option<&PerLayer>, layer: usize, left_out: &mut Vec<String>) -> u64 {
    let Some(heads) = heads else { return 0 };
    heads.at(layer).unwrap_or_else(|| {
        note(left_out, "keys and values of some layers: `attention.head_count_kv` has fewer elements than there are layers");
        0
    })
}

/// The layers with a window.
struct Windows {
    pattern: WindowPattern,
    cells: u64,
}

impl Windows {
    /// `None` where all layers keep the whole context.
    fn of(a: Attributes<'_>, cells: u64, run: &Run, left_out: &mut Vec<String>) -> Result<Option<Self>> {
        let Some(window) = a.window() else { return Ok(None) };
        let Some(pattern) = a.window_pattern() else {
            left_out.push(format!(
                "the window of {window} tokens, which would make the cache smaller: {}",
                a.absence("attention.sliding_window_pattern")
            ));
            return Ok(None);
        };
        let window = window.min(run.n_ctx);
        let cells = cells.min(round_up(sum("the window", [window, run.n_ubatch])?)?);
        Ok(Some(Self { pattern, cells }))
    }
}

fn attention(
    a: Attributes<'_>,
    n_heads: u64,
    cells: u64,
    window: bool,
    run: &Run,
    left_out: &mut Vec<String>,
) -> Result<LayerCache> {
    let lengths = if window {
        (a.key_length_window(), a.value_length_window())
    } else {
        (a.key_length(), a.value_length())
    };
    let (Some(key_length), Some(value_length)) = lengths else {
        note(
            left_out,
            &format!("keys and values: {}", a.absence("attention.key_length")),
        );
        return Ok(LayerCache::default());
    };
    let value_length = if a.mla_lengths().is_some() {
        0
    } else {
        value_length
    };
    let cells = product("the cache", &[cells, run.n_seq])?;
    let bytes = |format, what, length| {
        let row = row_bytes(format, what, length)?;
        product("the cache", &[row, n_heads, cells])
    };
    Ok(LayerCache {
        head_count_kv: n_heads,
        key_length,
        value_length,
        cells,
        window,
        keys: bytes(run.type_k, "key", key_length)?,
        values: bytes(run.type_v, "value", value_length)?,
        state: 0,
    })
}

/// Bytes of a head's key or value.
fn row_bytes(format: &Format, what: &str, length: u64) -> Result<u64> {
    format.geometry.row_bytes(length).ok_or_else(|| {
        Failure::Usage(format!(
            "cache type `{}` has blocks of {} elements, which do not divide a head's {what} of {length}; use `f16` or `bf16`",
            format.name, format.geometry.block_elems
        ))
    })
}

/// Bytes of a recurrent layer's state for a sequence; 0 where metadata do not tell.
fn state(a: Attributes<'_>, left_out: &mut Vec<String>, layers: &[Layer]) -> Result<u64> {
    if let Some(elems) = state_elems(a) {
        return product("the states", &[elems?, STATE_BYTES]);
    }
    if layers.iter().any(|l| l.recurrent) {
        left_out.push(format!(
            "states of recurrent layers: neither `{}` with its like nor `{}` nor `{}`",
            a.key("ssm.state_size"),
            a.key("wkv.head_size"),
            a.key("shortconv.l_cache")
        ));
    }
    Ok(0)
}

/// Elements of a state, the rolling inputs of convolutions among them: delta net (KDA), state space, RWKV, short
/// convolution, whichever the keys are of.
fn state_elems(a: Attributes<'_>) -> Option<Result<u64>> {
    let uint = |key| a.uint(key).map(|n| n.min(MAX_NUMBER));
    let times = |factors: &[u64]| product("the states", factors);
    let both = |x: Result<u64>, y: Result<u64>| sum("the states", [x?, y?]);
    let kernel = uint("ssm.conv_kernel");
    if let (Some(kernel), Some(width)) = (kernel, uint("kda.head_dim")) {
        let heads = a.largest("attention.head_count")?.min(MAX_NUMBER);
        let rolling = times(&[3, kernel.saturating_sub(1), heads, width]);
        return Some(both(rolling, times(&[width, width, heads])));
    }
    if let (Some(kernel), Some(inner), Some(size)) = (kernel, uint("ssm.inner_size"), uint("ssm.state_size"))
    {
        let groups = uint("ssm.group_count").unwrap_or(0);
        let columns = times(&[2, groups, size]).and_then(|n| sum("the states", [inner, n]));
        let rolling = columns.and_then(|n| times(&[kernel.saturating_sub(1), n]));
        return Some(both(rolling, times(&[size, inner])));
    }
    let n_embd = uint("embedding_length")?;
    if let Some(head) = uint("wkv.head_size") {
        let shifts = uint("token_shift_count").unwrap_or(2);
        return Some(times(&[n_embd, shifts.saturating_add(head)]));
    }
    let reach = uint("shortconv.l_cache")?;
    Some(times(&[n_embd, reach.saturating_sub(1)]))
}

fn round_up(cells: u64) -> Result<u64> {
    let cells = cells.checked_next_multiple_of(CELLS);
    cells.ok_or_else(|| Failure::Usage("the context has more cells than 64 bits can count".to_owned()))
}

/// Adds a line that the loop over layers would repeat.
fn note(left_out: &mut Vec<String>, line: &str) {
    if left_out.last().is_none_or(|last| last != line) {
        left_out.push(line.to_owned());
    }
}
