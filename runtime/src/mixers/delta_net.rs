//! The gated delta net.
//!
//! For each value head the state is a matrix `S` from keys to values, 0 in front of the first position. At every
//! position, with query and key of length 1, `S = e^g S`, then `S += beta (v - S k) k^T`, and the result is
//! `S q / sqrt(head_dim_k)`. Queries, keys and values come out of a short convolution over positions.

use gguf_models::spec::DeltaNet;

use crate::forward::{Env, Scratch};
use crate::kernels::elementwise::{add_scaled, dot, mul_silu, rms_norm, silu, softplus};
use crate::kernels::exp;
use crate::model::DeltaNetWeights;
use crate::pool;
use crate::recurrent::Recurrent;

/// Added to the square of the length of queries and keys.
const LENGTH_EPS: f32 = 1e-6;

/// What the delta net needs beside what all mixers do.
#[derive(Debug, Default)]
pub(crate) struct DeltaNetScratch {
    /// Gates of values: `n_inner` a row.
    gate: Vec<f32>,
    /// Strength and step of each value head, grouped by key head.
    beta_alpha: Vec<f32>,
    /// Queries, keys and values behind the convolution.
    conv: Vec<f32>,
    /// Results of heads: all rows of the first head, then those of the next.
    by_head: Vec<f32>,
}

/// From the normed rows in `s.x` to the result in `s.y`; the sequences' states move on.
pub(crate) fn run(w: &DeltaNetWeights, env: &mut Env<'_>, states: &mut Recurrent, s: &mut Scratch) {
    let spec = &w.spec;
    let d = &mut s.delta_net;
    let outputs = [
        (&w.qkv, &mut s.projected),
        (&w.gate, &mut d.gate),
        (&w.beta_alpha, &mut d.beta_alpha),
    ];
    env.matmul_each(outputs, &mut s.x);
    pool::resize(&mut d.conv, s.projected.len(), 0.0);
    pool::resize(&mut d.by_head, d.gate.len(), 0.0);
    let (n_qkv, n) = (spec.n_qkv(), s.place.len());
    let mut first = 0;
    while first < n {
        // Neighbours of one sequence go together.
        let (seq, pos) = s.place[first];
        let len = s.place[first..].iter().take_while(|p| p.0 == seq).count();
        let state = states.state(w.state_layer, seq as usize);
        if pos == 0 {
            state.conv.fill(0.0);
            state.heads.fill(0.0);
        }
        let rows = first..first + len;
        let conv = &mut d.conv[first * n_qkv..][..len * n_qkv];
        convolve(w, &s.projected[first * n_qkv..][..len * n_qkv], state.conv, conv);
        normalize_heads(spec, conv);
        let beta_alpha = &d.beta_alpha[first * 2 * spec.n_head_v..][..len * 2 * spec.n_head_v];
        advance(w, conv, beta_alpha, state.heads, &mut d.by_head, n, rows);
        first += len;
    }
    s.mixed.reset(n, spec.n_inner());
    let dim = spec.head_dim_v;
    let heads = s.mixed.rows_mut().chunks_mut(dim);
    let heads = heads.zip(d.gate.chunks(dim)).enumerate();
    pool::rows(heads, |(i, (out, gate))| {
        let at = (i % spec.n_head_v * n + i / spec.n_head_v) * dim;
        rms_norm(&d.by_head[at..at + dim], &w.norm.weight, w.norm.eps, out);
        mul_silu(out, gate);
    });
    env.matmul(&w.output, &mut s.mixed, &mut s.y);
}

/// The convolution of each channel over the last positions, and its gate; `last` moves on.
fn convolve(w: &DeltaNetWeights, rows: &[f32], last: &mut [f32], out: &mut [f32]) {
    let (n_qkv, n_conv) = (w.spec.n_qkv(), w.spec.n_conv);
    let n_last = n_conv - 1;
    let row = |i: usize| {
        // Rows of the state go ahead.
        if i < n_last {
            &last[i * n_qkv..][..n_qkv]
        } else {
            &rows[(i - n_last) * n_qkv..][..n_qkv]
        }
    };
    let each = out.chunks_mut(n_qkv).enumerate();
    pool::rows(each, |(t, out)| {
        out.fill(0.0);
        for k in 0..n_conv {
            let weights = w.conv.iter().skip(k).step_by(n_conv);
            for ((o, x), weight) in out.iter_mut().zip(row(t + k)).zip(weights) {
                *o += x * weight;
            }
        }
        silu(out);
    });
    let n = rows.len() / n_qkv;
    if n >= n_last {
        last.copy_from_slice(&rows[(n - n_last) * n_qkv..]);
    } else {
        last.copy_within(n * n_qkv.., 0);
        last[(n_last - n) * n_qkv..].copy_from_slice(rows);
    }
}

/// Gives queries and keys the length 1, and queries the factor of the result.
fn normalize_heads(spec: &DeltaNet, rows: &mut [f32]) {
    let (dim, n_keys) = (spec.head_dim_k, spec.n_head_k * spec.head_dim_k);
    let query_factor = 1.0 / (dim as f32).sqrt();
    let rows = rows.chunks_mut(spec.n_qkv());
    pool::rows(rows, |row| {
        for (i, head) in row[..2 * n_keys].chunks_exact_mut(dim).enumerate() {
            let factor = 1.0 / (dot(head, head) + LENGTH_EPS).sqrt();
            let factor = if i < spec.n_head_k {
                factor * query_factor
            } else {
                factor
            };
            for v in head {
                *v *= factor;
            }
        }
    });
}

/// Moves the states of all heads over the rows; result row `rows.start + t` of head `h` is
/// `out[(h * n + rows.start + t) * head_dim_v ..]`, `n` being the rows of the batch.
fn advance(
    w: &DeltaNetWeights,
    qkv: &[f32],
    beta_alpha: &[f32],
    states: &mut [f32],
    out: &mut [f32],
    n: usize,
    rows: std::ops::Range<usize>,
) {
    let spec = &w.spec;
    let (dim_k, dim_v, per_key) = (spec.head_dim_k, spec.head_dim_v, spec.n_head_v / spec.n_head_k);
    let n_keys = spec.n_head_k * dim_k;
    let heads = states
        .chunks_mut(dim_k * dim_v)
        .zip(out.chunks_mut(n * dim_v))
        .enumerate();
    pool::for_each(heads, |(h, (state, out))| {
        let (key_head, value) = (h / per_key, h % per_key);
        let results = out[rows.start * dim_v..rows.end * dim_v].chunks_exact_mut(dim_v);
        let inputs = qkv
            .chunks_exact(spec.n_qkv())
            .zip(beta_alpha.chunks_exact(2 * spec.n_head_v));
        for (out, (qkv, beta_alpha)) in results.zip(inputs) {
            let q = &qkv[key_head * dim_k..][..dim_k];
            let k = &qkv[n_keys + key_head * dim_k..][..dim_k];
            let v = &qkv[2 * n_keys + h * dim_v..][..dim_v];
            let of_key = &beta_alpha[key_head * 2 * per_key..][..2 * per_key];
            let beta = 1.0 / (1.0 + exp(-of_key[value]));
            let decay = exp(w.a[h] * softplus(of_key[per_key + value] + w.dt[h]));
            for ((row, v), o) in state.chunks_exact_mut(dim_k).zip(v).zip(out) {
                for s in &mut *row {
                    *s *= decay;
                }
                let delta = (v - dot(row, k)) * beta;
                add_scaled(row, k, delta);
                *o = dot(row, q);
            }
        }
    });
}
