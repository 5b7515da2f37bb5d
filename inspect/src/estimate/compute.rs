//! What one pass over a ubatch needs beside weights and caches: an upper bound from the widths of the model.
//!
//! Let T be the tokens of a ubatch and all activations F32. A pass holds all the time
//!
//! - `3 T n_embd`: the residual stream, its norm, the sum in the making,
//! - `T n_cells` for the mask, and as much for the cells of a window where some layers have one,
//! - `16 T` for token ids, positions and places in the cache, and 1 MiB for small tensors and alignment,
//!
//! and of these stages one after the other, so that the largest counts:
//!
//! - attention: queries, keys, values twice (before and after rotation), the heads' results, with compressed attention
//!   (MLA) the queries before compression, too; without flash attention the scores, `T n_head n_cells`;
//! - feed-forward: `T (3 n_ff + 2 n_embd)`; with experts, for each one used, `T (3 n_ff_exp + 2 n_embd)`, the shared
//!   ones counted likewise, and `3 T n_expert` for the router;
//! - recurrent layers: `6 T inner` and the states once more;
//! - output: `T (n_vocab + n_embd)`, as if logits of all tokens were asked for.
//!
//! Where stages reuse each other's memory in part, a program gets by with less; a program with other kernels may need
//! some memory for each thread beside.

use gguf_cli::Result;
use gguf_models::Attributes;
use serde::Serialize;

use super::cache::Cache;
use super::{MAX_NUMBER, Run, product, sum};

/// Words of a token's inputs: id, position, places in up to two caches, whether logits are wanted; and room.
const INPUTS: u64 = 16;
/// Bytes of what does not grow with the tokens.
const SMALL: u64 = 1 << 20;
/// Bytes of an activation.
const F32: u64 = 4;

/// Sums in bytes.
#[derive(Debug, Default, Serialize)]
pub(super) struct Compute {
    /// What is held all the time.
    pub(super) resident: u64,
    pub(super) attention: u64,
    pub(super) feed_forward: u64,
    pub(super) recurrent: u64,
    pub(super) output: u64,
    /// Logits that a program gets, those of one token for each sequence.
    pub(super) logits: u64,
    /// `resident`, the largest stage and the logits.
    pub(super) total: u64,
}

impl Compute {
    /// The bound; widths that metadata do not tell are left out with a line in `left_out`.
    pub(super) fn of(
        a: Attributes<'_>,
        cache: &Cache,
        n_vocab: Option<u64>,
        run: &Run,
        left_out: &mut Vec<String>,
    ) -> Result<Self> {
        let Some(n_embd) = a.embedding_length() else {
            left_out.push(format!("compute buffers: {}", a.absence("embedding_length")));
            return Ok(Self::default());
        };
        let n_embd = n_embd.min(MAX_NUMBER);
        let n_vocab = n_vocab.unwrap_or_else(|| {
            left_out.push("logits: neither output matrix nor embeddings nor vocabulary".to_owned());
            0
        });
        // Each sequence may have a token in a ubatch, however small it is asked to be.
        let tokens = run.n_ubatch.max(run.n_seq);
        let bytes = |elems: u64| product("the compute buffers", &[tokens, elems, F32]);
        let masks = sum("the masks", [cache.cells, cache.window_cells.unwrap_or(0)])?;
        let stages = Self {
            resident: sum(
                "the compute buffers",
                [bytes(total(&[(3, n_embd), (1, masks), (1, INPUTS)])?)?, SMALL],
            )?,
            attention: bytes(attention(a, cache, run)?)?,
            feed_forward: bytes(feed_forward(a, n_embd)?)?,
            recurrent: recurrent(a, cache, &bytes)?,
            output: bytes(total(&[(1, n_vocab), (1, n_embd)])?)?,
            logits: product("the logits", &[n_vocab, run.n_seq, F32])?,
            total: 0,
        };
        let largest = stages
            .attention
            .max(stages.feed_forward)
            .max(stages.recurrent)
            .max(stages.output);
        Ok(Self {
            total: sum("the compute buffers", [stages.resident, largest, stages.logits])?,
            ..stages
        })
    }
}

/// The sum of numbers, each so many times.
fn total(terms: &[(u64, u64)]) -> Result<u64> {
    terms.iter().try_fold(0, |all, &(n, elems)| {
        sum(
            "the compute buffers",
            [all, product("the compute buffers", &[n, elems])?],
        )
    })
}

/// Elements for a token, in the layer that needs most.
fn attention(a: Attributes<'_>, cache: &Cache, run: &Run) -> Result<u64> {
    let heads = a.head_count();
    let value_of_key = a.value_length().unwrap_or(0).min(MAX_NUMBER);
    let mut most = 0;
    for (i, layer) in cache.layers.iter().enumerate() {
        if layer.head_count_kv == 0 {
            continue;
        }
        let heads = heads
            .as_ref()
            .and_then(|h| h.at(i))
            .unwrap_or(layer.head_count_kv);
        let heads = heads.min(MAX_NUMBER);
        let value = layer.value_length.max(value_of_key);
        let scores = if run.flash_attn {
            0
        } else {
            layer.cells / run.n_seq
        };
        let (key_mla, value_mla) = a.mla_lengths().unwrap_or((0, 0));
        let of_head = total(&[
            (2, layer.key_length),
            (1, value),
            (2, key_mla.min(MAX_NUMBER)),
            (1, value_mla.min(MAX_NUMBER)),
            (1, scores),
        ])?;
        let of_head_kv = total(&[(2, layer.key_length), (2, value)])?;
        most = most.max(total(&[(heads, of_head), (layer.head_count_kv, of_head_kv)])?);
    }
    Ok(most)
}

/// Elements for a token, of the dense part or the experts, whichever is more.
fn feed_forward(a: Attributes<'_>, n_embd: u64) -> Result<u64> {
    let number = |n: Option<u64>| n.unwrap_or(0).min(MAX_NUMBER);
    let n_ff = number(a.feed_forward_length());
    let dense = total(&[(3, n_ff), (2, n_embd)])?;
    let n_expert = a.expert_count().min(MAX_NUMBER);
    if n_expert == 0 {
        return Ok(dense);
    }
    let n_ff_exp = number(a.expert_feed_forward_length());
    let one = total(&[(3, n_ff_exp), (2, n_embd)])?;
    let shared = number(a.largest("expert_shared_count"));
    let n_ff_shared = number(a.largest("expert_shared_feed_forward_length"));
    let experts = sum("experts", [a.expert_used_count().min(n_expert), shared])?;
    let sparse = total(&[(experts, one), (3, n_ff_shared), (3, n_expert)])?;
    Ok(dense.max(sparse))
}

fn recurrent(a: Attributes<'_>, cache: &Cache, bytes: &impl Fn(u64) -> Result<u64>) -> Result<u64> {
    let state = cache.layers.iter().map(|l| l.state).max().unwrap_or(0);
    if state == 0 {
        return Ok(0);
    }
    let inner = a
        .uint("ssm.inner_size")
        .or_else(|| a.embedding_length())
        .unwrap_or(0);
    sum(
        "the states",
        [bytes(total(&[(6, inner.min(MAX_NUMBER))])?)?, state],
    )
}
