//! Causal attention of many queries over the cache.
//!
//! For each query the positions are taken in blocks of [`BLOCK`], counted from 0, so that no matrix of scores of
//! a whole context is made and a result does not depend on which queries are computed together. Blocks of which
//! a query sees nothing are passed over. All is f32 without fusing, in this order, for each block:
//!
//! * scores `s[i] = (sum over elements in order of k * q) * scale`, then `cap * tanh(s[i] / cap)` where there is a
//!   cap, minus infinity for positions not seen;
//! * `m' = max(m, all s)`, `c = exp(m - m')`, `p[i] = exp(s[i] - m')`;
//! * eight partial sums `l[j] = l[j] * c + ((p[j] + p[j + 8]) + (p[j + 16] + p[j + 24]))`;
//! * each element of the output `o = o * c + (sum over seen positions in order of v * p)`.
//!
//! A sink is what these start from: `m` is the sink and `l[0]` is 1. At the end `o` is multiplied with `1 / l`, `l`
//! being added pairwise.

use std::cell::RefCell;
use std::ops::Range;

use gguf_blocks::{Cpu, Level};

use super::elementwise::{lane_sum, softcap};
use super::exp;
use super::float::{Lanes, products};
use crate::kv::{LayerCache, Order};
use crate::memory::GridMut;

/// Positions of a block.
pub(crate) const BLOCK: usize = 32;
/// Positions whose scores are computed side by side.
pub(crate) const LANES: usize = 8;

/// Queries (pairs of a row and a head) that share decoded keys and values.
const QUERIES: usize = 32;
/// Rows of a task at most.
const ROWS: usize = 32;
/// Query heads of one key head from which on they are shared out; each part decodes the keys again.
const HEADS: usize = 8;
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
        assert!(
            self.sinks.is_none_or(|s| s.len() == dims.n_head),
            "each query head has a sink"
        );
        self.split(
            0..n,
            0..dims.n_head,
            GridMut::new(out, dims.n_head * dims.head_dim_v),
        );
    }

    /// Query heads of each key head.
    fn group(&self) -> usize {
        self.cache.heads.n_head / self.cache.heads.n_head_kv
    }

    /// Positions that row `row` sees.
    fn seen(&self, row: usize) -> Range<usize> {
        let pos = self.place[row].1 as usize;
        self.cache.heads.window.first(pos)..pos + 1
    }

    /// Where query heads are best parted: between key heads, else within the group of one.
    fn middle(&self, heads: &Range<usize>) -> Option<usize> {
        let group = self.group();
        if heads.len() > group {
            Some(heads.start + heads.len() / group / 2 * group)
        } else if heads.len() >= HEADS {
            Some(heads.start + (heads.len() / 2).next_multiple_of(HEADS / 2))
        } else {
            None
        }
    }

    /// Rows and query heads, in parallel as far as it pays; `out` has just these rows and the heads' columns. The
    /// heads are those of whole groups or within one.
    fn split(&self, rows: Range<usize>, heads: Range<usize>, out: GridMut<'_>) {
        let dims = &self.cache.heads;
        let seen: usize = rows.clone().map(|row| self.seen(row).len()).sum();
        let work = seen * heads.len() * (dims.head_dim_k + dims.head_dim_v) / 6;
        let worth_it = work > 2 * TASK;
        if worth_it && rows.len() > ROWS {
            let at = (rows.len() / 2).next_multiple_of(ROWS);
            let (first, second) = out.split_rows(at);
            let middle = rows.start + at;
            rayon::join(
                || self.split(rows.start..middle, heads.clone(), first),
                || self.split(middle..rows.end, heads.clone(), second),
            );
        } else if worth_it && let Some(middle) = self.middle(&heads) {
            let (first, second) = out.split_cols((middle - heads.start) * dims.head_dim_v);
            rayon::join(
                || self.split(rows.clone(), heads.start..middle, first),
                || self.split(rows.clone(), middle..heads.end, second),
            );
        } else {
            self.serial(rows, heads, out);
        }
    }

    fn serial(&self, rows: Range<usize>, heads: Range<usize>, mut out: GridMut<'_>) {
        let dim = self.cache.heads.head_dim_v;
        let group = self.group();
        SCRATCH.with_borrow_mut(|scratch| {
            let mut start = rows.start;
            // Neighbours of one sequence are computed together.
            for run in self.place[rows.clone()].chunk_by(|a, b| a.0 == b.0) {
                for head in heads.start / group..heads.end.div_ceil(group) {
                    let of_head = heads.start.max(head * group)..heads.end.min((head + 1) * group);
                    let n_queries = run.len() * of_head.len();
                    for first in (0..n_queries).step_by(QUERIES) {
                        let n = QUERIES.min(n_queries - first);
                        let queries = Queries {
                            at: self,
                            start,
                            head,
                            heads: of_head.clone(),
                            first,
                            n,
                        };
                        queries.run(scratch);
                        for i in 0..n {
                            let (row, query_head) = queries.place(i);
                            let column = (query_head - heads.start) * dim;
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
    /// Query heads.
    heads: Range<usize>,
    /// First query, counted row by row and in a row head by head.
    first: usize,
    n: usize,
}

impl Queries<'_> {
    /// Row and query head of query `i`.
    fn place(&self, i: usize) -> (usize, usize) {
        let n_heads = self.heads.len();
        (
            self.start + (self.first + i) / n_heads,
            self.heads.start + (self.first + i) % n_heads,
        )
    }

    /// Elements of query `i`.
    fn q(&self, i: usize) -> &[f32] {
        let dims = &self.at.cache.heads;
        let (row, head) = self.place(i);
        &self.at.q[(row * dims.n_head + head) * dims.head_dim_k..][..dims.head_dim_k]
    }

    fn run(&self, s: &mut Scratch) {
        s.reset(self);
        let first = s.seen.iter().map(|seen| seen.start).min().unwrap_or(0) / BLOCK;
        let end = s
            .seen
            .iter()
            .map(|seen| seen.end)
            .max()
            .unwrap_or(0)
            .div_ceil(BLOCK);
        for block in first..end {
            let mut loaded = false;
            let mut i = 0;
            while i < self.n {
                let seen = s.seen_of(i, block);
                if seen.is_empty() {
                    i += 1;
                    continue;
                }
                if !loaded {
                    s.load(self, block);
                    loaded = true;
                }
                let alike = (i + 1..self.n).take_while(|&j| s.seen_of(j, block) == seen);
                i += match 1 + alike.take(7).count() {
                    8 => self.block::<8>(s, i, seen),
                    4.. => self.block::<4>(s, i, seen),
                    2.. => self.block::<2>(s, i, seen),
                    _ => self.block::<1>(s, i, seen),
                };
            }
        }
    }

    /// One block of positions, of which those in `seen` are seen, for queries `i..i + N`. Returns `N`.
    fn block<const N: usize>(&self, s: &mut Scratch, i: usize, seen: Range<usize>) -> usize {
        let (cpu, dims) = (self.at.cpu, &self.at.cache.heads);
        let q: [&[f32]; N] = std::array::from_fn(|j| self.q(i + j));
        let mut scores = [[f32::NEG_INFINITY; BLOCK]; N];
        for part in seen.start / LANES..seen.end.div_ceil(LANES) {
            let lanes = Lanes {
                data: &s.k[part * LANES * dims.head_dim_k..],
                stride: LANES,
            };
            for (scores, sums) in scores.iter_mut().zip(products(cpu, lanes, q)) {
                for (score, sum) in scores[part * LANES..][..LANES].iter_mut().zip(sums) {
                    *score = sum * dims.scale;
                }
            }
        }
        let mut factor = [0.0; N];
        for (j, scores) in scores.iter_mut().enumerate() {
            if dims.softcap != 0.0 {
                soften(cpu, scores, dims.softcap);
            }
            scores[..seen.start].fill(f32::NEG_INFINITY);
            scores[seen.end..].fill(f32::NEG_INFINITY);
            factor[j] = weigh(cpu, scores, &mut s.state[i + j]);
        }
        let p = scores.each_ref().map(|p| &p[seen.clone()]);
        for first in (0..s.stride).step_by(LANES) {
            let lanes = Lanes {
                data: &s.v[seen.start * s.stride + first..],
                stride: s.stride,
            };
            let sums = products(cpu, lanes, p);
            for j in 0..N {
                let out = &mut s.out[(i + j) * s.stride + first..][..LANES];
                for (out, sum) in out.iter_mut().zip(sums[j]) {
                    *out = *out * factor[j] + sum;
                }
            }
        }
        N
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

/// `cap * tanh(score / cap)` of each score.
fn soften(cpu: Cpu, scores: &mut [f32; BLOCK], cap: f32) {
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::soften(scores, cap),
        _ => soften_with(scores, cap),
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn soften_with(scores: &mut [f32; BLOCK], cap: f32) {
    softcap(scores, cap);
}

/// Eight rows of `n` elements, `stride` apart, become `n` rows of lanes. `rows` ends with the last element.
fn to_lanes(cpu: Cpu, rows: &[f32], stride: usize, n: usize, lanes: &mut [[f32; LANES]]) {
    assert!(
        n <= stride && (LANES - 1) * stride + n <= rows.len() && lanes.len() == n,
        "the rows and lanes are there"
    );
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::to_lanes(rows, stride, lanes),
        _ => {
            for (lane, row) in rows.chunks(stride).take(LANES).enumerate() {
                for (lanes, v) in lanes.iter_mut().zip(row) {
                    lanes[lane] = *v;
                }
            }
        }
    }
}

/// The way back: rows of lanes become eight rows, `stride` apart, of as many elements.
fn from_lanes(cpu: Cpu, lanes: &[[f32; LANES]], rows: &mut [f32], stride: usize) {
    assert!(
        lanes.len() <= stride && (LANES - 1) * stride + lanes.len() <= rows.len(),
        "the rows are there"
    );
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::from_lanes(lanes, rows, stride),
        _ => {
            for (lane, row) in rows.chunks_mut(stride).take(LANES).enumerate() {
                for (lanes, v) in lanes.iter().zip(row) {
                    *v = lanes[lane];
                }
            }
        }
    }
}

/// What a thread needs for its queries.
#[derive(Default)]
struct Scratch {
    /// Positions that each query sees.
    seen: Vec<Range<usize>>,
    /// Keys of a block: of each [`LANES`] positions, element after element.
    k: Vec<f32>,
    /// Keys of a block position after position, where they are stored that way.
    k_rows: Vec<f32>,
    /// Values of a block: position after position, `stride` apart.
    v: Vec<f32>,
    state: Vec<Softmax>,
    /// Sum of weighted values of each query, `stride` apart.
    out: Vec<f32>,
    /// Elements of a value, rounded up to whole lanes.
    stride: usize,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    fn reset(&mut self, queries: &Queries<'_>) {
        let (at, n) = (queries.at, queries.n);
        self.seen.clear();
        self.seen.extend((0..n).map(|i| at.seen(queries.place(i).0)));
        self.stride = at.cache.heads.head_dim_v.next_multiple_of(LANES);
        self.state.clear();
        self.state.extend((0..n).map(|i| {
            let sink = at.sinks.map(|sinks| sinks[queries.place(i).1]);
            let mut sums = [0.0; LANES];
            sums[0] = if sink.is_some() { 1.0 } else { 0.0 };
            Softmax {
                max: sink.unwrap_or(f32::NEG_INFINITY),
                sums,
            }
        }));
        self.out.clear();
        self.out.resize(n * self.stride, 0.0);
    }

    /// What query `i` sees of a block.
    fn seen_of(&self, i: usize, block: usize) -> Range<usize> {
        let part = |pos: usize| pos.saturating_sub(block * BLOCK).min(BLOCK);
        part(self.seen[i].start)..part(self.seen[i].end)
    }

    /// Decodes a block of keys and values.
    fn load(&mut self, queries: &Queries<'_>, block: usize) {
        let (cpu, cache) = (queries.at.cpu, queries.at.cache);
        let dims = &cache.heads;
        let seq = queries.at.place[queries.start].0 as usize;
        let head = seq * dims.n_head_kv + queries.head;
        let (dim_k, dim_v) = (dims.head_dim_k, dims.head_dim_v);
        self.k.resize(BLOCK * dim_k, 0.0);
        let in_lanes = cache.k.order() == Order::Lanes;
        if in_lanes {
            cache.k.decode(head, block, &mut self.k);
        } else {
            self.k_rows.resize(BLOCK * dim_k, 0.0);
            cache.k.decode(head, block, &mut self.k_rows);
            let parts = self.k.as_chunks_mut::<LANES>().0.chunks_exact_mut(dim_k);
            for (lanes, rows) in parts.zip(self.k_rows.chunks_exact(LANES * dim_k)) {
                to_lanes(cpu, rows, dim_k, dim_k, lanes);
            }
        }
        self.v.resize(BLOCK * self.stride, 0.0);
        match &cache.v {
            Some(v) => v.decode_strided(head, block, self.stride, &mut self.v),
            None if in_lanes => {
                let parts = self.k.as_chunks::<LANES>().0.chunks_exact(dim_k);
                let rows = self.v.chunks_exact_mut(LANES * self.stride);
                for (rows, lanes) in rows.zip(parts) {
                    from_lanes(cpu, &lanes[..dim_v], rows, self.stride);
                }
            }
            None => {
                let rows = self.v.chunks_exact_mut(self.stride);
                for (v, k) in rows.zip(self.k_rows.chunks_exact(dim_k)) {
                    v[..dim_v].copy_from_slice(&k[..dim_v]);
                }
            }
        }
    }

    /// Writes the result of query `i`.
    fn finish(&self, i: usize, out: &mut [f32]) {
        let factor = 1.0 / lane_sum(self.state[i].sums);
        for (out, sum) in out.iter_mut().zip(&self.out[i * self.stride..]) {
            *out = sum * factor;
        }
    }
}

#[cfg(test)]
mod tests;
