//! Causal attention of many queries over the f16 cache.
//!
//! For each query the positions are taken in blocks of [`BLOCK`], counted from 0, so that no matrix of scores of
//! a whole context is made and a result does not depend on which queries are computed together. All is f32
//! without fusing, in this order, for each block:
//!
//! * scores `s[i] = (sum over elements in order of k * q) * scale`, minus infinity for positions not seen;
//! * `m' = max(m, all s)`, `c = exp(m - m')`, `p[i] = exp(s[i] - m')`;
//! * eight partial sums `l[j] = l[j] * c + ((p[j] + p[j + 8]) + (p[j + 16] + p[j + 24]))`;
//! * each element of the output `o = o * c + (sum over seen positions in order of v * p)`.
//!
//! At the end `o` is multiplied with `1 / l`, `l` being added pairwise.

use std::cell::RefCell;
use std::ops::Range;

use gguf_blocks::half_bulk::f16_to_f32;
use gguf_blocks::{Cpu, Level};

use super::exp;
use super::float::{Lanes, products};
use crate::kv::LayerCache;
use crate::memory::GridMut;

/// Positions of a block.
pub(crate) const BLOCK: usize = 32;
/// Positions whose scores are computed side by side.
pub(crate) const LANES: usize = 8;

/// Queries (pairs of a row and a head) that share converted keys and values.
const QUERIES: usize = 32;
/// Rows of a task at most.
const ROWS: usize = 32;
/// Work of a task, in units of about a nanosecond.
const TASK: usize = 30_000;

/// Attention of one layer for the rows of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention<'a> {
    pub(crate) cpu: Cpu,
    pub(crate) cache: &'a LayerCache,
    /// Rows of `n_head * head_dim_k` elements.
    pub(crate) q: &'a [f32],
    /// One more logit for each query head.
    pub(crate) sinks: Option<&'a [f32]>,
    /// Sequence and position of each row.
    pub(crate) place: &'a [(u32, u32)],
}

impl Attention<'_> {
    /// Computes all rows of `out`, each of `n_head * head_dim_v` elements.
    pub(crate) fn run(&self, out: &mut [f32]) {
        let dims = &self.cache.heads;
        let n = self.place.len();
        assert!(
            dims.n_head.is_multiple_of(dims.n_head_kv),
            "key heads serve the same number of query heads"
        );
        assert_eq!(
            self.q.len(),
            n * dims.n_head * dims.head_dim_k,
            "elements of {n} query rows"
        );
        assert_eq!(
            out.len(),
            n * dims.n_head * dims.head_dim_v,
            "elements of {n} output rows"
        );
        self.split(
            0..n,
            0..dims.n_head_kv,
            GridMut::new(out, dims.n_head * dims.head_dim_v),
        );
    }

    /// Query heads of each key head.
    fn group(&self) -> usize {
        self.cache.heads.n_head / self.cache.heads.n_head_kv
    }

    /// Rows and key heads, in parallel as far as it pays; `out` has just these rows and the heads' columns.
    fn split(&self, rows: Range<usize>, heads: Range<usize>, out: GridMut<'_>) {
        let dims = &self.cache.heads;
        let seen: usize = self.place[rows.clone()]
            .iter()
            .map(|&(_, pos)| pos as usize + 1)
            .sum();
        let a_head = seen * self.group() * (dims.head_dim_k + dims.head_dim_v) / 6;
        let worth_it = a_head * heads.len() > 2 * TASK;
        if worth_it && rows.len() > ROWS {
            let at = (rows.len() / 2).next_multiple_of(ROWS);
            let (first, second) = out.split_rows(at);
            let middle = rows.start + at;
            rayon::join(
                || self.split(rows.start..middle, heads.clone(), first),
                || self.split(middle..rows.end, heads.clone(), second),
            );
        } else if worth_it && heads.len() > 1 {
            let at = heads.len() / 2;
            let (first, second) = out.split_cols(at * self.group() * dims.head_dim_v);
            let middle = heads.start + at;
            rayon::join(
                || self.split(rows.clone(), heads.start..middle, first),
                || self.split(rows.clone(), middle..heads.end, second),
            );
        } else {
            self.serial(rows, heads, out);
        }
    }

    fn serial(&self, rows: Range<usize>, heads: Range<usize>, mut out: GridMut<'_>) {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut start = rows.start;
            // Neighbours of one sequence are computed together.
            for run in self.place[rows.clone()].chunk_by(|a, b| a.0 == b.0) {
                for head in heads.clone() {
                    let n_queries = run.len() * self.group();
                    for first in (0..n_queries).step_by(QUERIES) {
                        let n = QUERIES.min(n_queries - first);
                        let queries = Queries {
                            at: self,
                            start,
                            head,
                            first,
                            n,
                        };
                        queries.run(scratch);
                        for i in 0..n {
                            let (row, query_head) = queries.place(i);
                            let dim = self.cache.heads.head_dim_v;
                            let column = (query_head - heads.start * self.group()) * dim;
                            scratch.finish(i, &mut out.row_mut(row - rows.start)[column..][..dim]);
                        }
                    }
                }
                start += run.len();
            }
        });
    }
}

/// Up to [`QUERIES`] queries of one sequence and one key head.
struct Queries<'a> {
    at: &'a Attention<'a>,
    /// Row of query 0 of the run.
    start: usize,
    /// Key head.
    head: usize,
    /// First query, counted row by row and in a row head by head.
    first: usize,
    n: usize,
}

impl Queries<'_> {
    /// Row and query head of query `i`.
    fn place(&self, i: usize) -> (usize, usize) {
        let group = self.at.group();
        (
            self.start + (self.first + i) / group,
            self.head * group + (self.first + i) % group,
        )
    }

    /// Elements of query `i`.
    fn q(&self, i: usize) -> &[f32] {
        let dims = &self.at.cache.heads;
        let (row, head) = self.place(i);
        &self.at.q[(row * dims.n_head + head) * dims.head_dim_k..][..dims.head_dim_k]
    }

    /// Positions that query `i` sees.
    fn seen(&self, i: usize) -> usize {
        self.at.place[self.place(i).0].1 as usize + 1
    }

    fn run(&self, s: &mut Scratch) {
        let cache = self.at.cache;
        let seq = self.at.place[self.start].0 as usize;
        s.reset(self.n, cache.heads.head_dim_v);
        let most = (0..self.n).map(|i| self.seen(i)).max().unwrap_or(0);
        for block in 0..most.div_ceil(BLOCK) {
            let first = block * BLOCK;
            s.load(
                self.at.cpu,
                cache.k_block(seq, self.head, block),
                cache.v_block(seq, self.head, block),
            );
            let mut i = 0;
            while i < self.n {
                let whole = |i: usize| i < self.n && self.seen(i) >= first + BLOCK;
                if (i..i + 4).all(whole) {
                    self.block::<4>(s, i, BLOCK);
                    i += 4;
                } else {
                    if self.seen(i) > first {
                        self.block::<1>(s, i, BLOCK.min(self.seen(i) - first));
                    }
                    i += 1;
                }
            }
        }
    }

    /// One block of positions, of which the first `n_seen` are seen, for queries `i..i + N`.
    fn block<const N: usize>(&self, s: &mut Scratch, i: usize, n_seen: usize) {
        let (cpu, dims) = (self.at.cpu, &self.at.cache.heads);
        let q: [&[f32]; N] = std::array::from_fn(|j| self.q(i + j));
        let mut scores = [[f32::NEG_INFINITY; BLOCK]; N];
        for (part, k) in s.k.chunks_exact(LANES * dims.head_dim_k).enumerate() {
            let n_part = n_seen.saturating_sub(part * LANES).min(LANES);
            if n_part == 0 {
                break;
            }
            let sums = products(
                cpu,
                Lanes {
                    data: k,
                    stride: LANES,
                },
                q,
            );
            for (scores, sums) in scores.iter_mut().zip(sums) {
                for (score, sum) in scores[part * LANES..][..n_part].iter_mut().zip(sums) {
                    *score = sum * dims.scale;
                }
            }
        }
        let mut factor = [0.0; N];
        for j in 0..N {
            factor[j] = weigh(cpu, &mut scores[j], &mut s.state[i + j]);
        }
        let p = scores.each_ref().map(|p| &p[..n_seen]);
        for first in (0..s.stride).step_by(LANES) {
            let sums = products(
                cpu,
                Lanes {
                    data: &s.v[first..],
                    stride: s.stride,
                },
                p,
            );
            for j in 0..N {
                let out = &mut s.out[(i + j) * s.stride + first..][..LANES];
                for (out, sum) in out.iter_mut().zip(sums[j]) {
                    *out = *out * factor[j] + sum;
                }
            }
        }
    }
}

/// The running maximum and partial sums of a query's softmax.
#[derive(Clone, Copy, Debug)]
pub(super) struct Softmax {
    max: f32,
    sums: [f32; LANES],
}

/// Turns a block's scores into weights relative to the new maximum; the result is what earlier weights must be
/// multiplied with.
fn weigh(cpu: Cpu, scores: &mut [f32; BLOCK], state: &mut Softmax) -> f32 {
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::weigh(scores, state),
        _ => weigh_with(scores, state),
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn weigh_with(scores: &mut [f32; BLOCK], state: &mut Softmax) -> f32 {
    let mut max = [state.max; LANES];
    for s in scores.as_chunks::<LANES>().0 {
        for (max, s) in max.iter_mut().zip(s) {
            *max = if *s > *max { *s } else { *max };
        }
    }
    let max = max.into_iter().fold(state.max, |a, b| if b > a { b } else { a });
    let factor = exp(state.max - max);
    for s in scores.iter_mut() {
        *s = exp(*s - max);
    }
    let p = scores.as_chunks::<LANES>().0;
    for (j, sum) in state.sums.iter_mut().enumerate() {
        *sum = *sum * factor + ((p[0][j] + p[1][j]) + (p[2][j] + p[3][j]));
    }
    state.max = max;
    factor
}

/// Converts halves.
fn to_f32(cpu: Cpu, halves: &[u16], out: &mut [f32]) {
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::to_f32(halves, out),
        _ => {
            for (out, h) in out.iter_mut().zip(halves) {
                *out = f16_to_f32(*h);
            }
        }
    }
}

/// What a thread needs for its queries.
#[derive(Default)]
struct Scratch {
    /// Keys of a block: of each [`LANES`] positions, element after element.
    k: Vec<f32>,
    /// Values of a block: position after position, `stride` apart.
    v: Vec<f32>,
    state: Vec<Softmax>,
    /// Sum of weighted values of each query, `stride` apart.
    out: Vec<f32>,
    /// Elements of a value, rounded up to whole lanes.
    stride: usize,
    dim_v: usize,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    fn reset(&mut self, n_queries: usize, dim_v: usize) {
        self.dim_v = dim_v;
        self.stride = dim_v.next_multiple_of(LANES);
        self.state.clear();
        self.state.resize(
            n_queries,
            Softmax {
                max: f32::NEG_INFINITY,
                sums: [0.0; LANES],
            },
        );
        self.out.clear();
        self.out.resize(n_queries * self.stride, 0.0);
    }

    fn load(&mut self, cpu: Cpu, k: &[u16], v: &[u16]) {
        self.k.resize(k.len(), 0.0);
        self.v.resize(BLOCK * self.stride, 0.0);
        to_f32(cpu, k, &mut self.k);
        if self.stride == self.dim_v {
            to_f32(cpu, v, &mut self.v);
        } else {
            for (out, v) in self
                .v
                .chunks_exact_mut(self.stride)
                .zip(v.chunks_exact(self.dim_v))
            {
                to_f32(cpu, v, &mut out[..self.dim_v]);
            }
        }
    }

    /// Writes the result of query `i`.
    fn finish(&self, i: usize, out: &mut [f32]) {
        let [a, b, c, d, e, f, g, h] = self.state[i].sums;
        let factor = 1.0 / (((a + e) + (c + g)) + ((b + f) + (d + h)));
        for (out, sum) in out.iter_mut().zip(&self.out[i * self.stride..]) {
            *out = sum * factor;
        }
    }
}

#[cfg(test)]
mod tests;
