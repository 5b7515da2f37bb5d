//! The queries that one task computes.

use std::ops::Range;

use gguf_blocks::{Cpu, Level};

use super::{Attention, BLOCK, LANES, MOST, STRETCH, portable};
use crate::kernels::elementwise::lane_sum;
use crate::kernels::exp::exp_below_0;
use crate::kv::RowsOfHead;
use crate::memory::GridMut;

/// Rows of one sequence and query heads of one key head.
#[derive(Clone, Debug)]
pub(super) struct Tile {
    pub(super) rows: Range<usize>,
    pub(super) heads: Range<usize>,
    /// Key head, counted over all sequences.
    head: usize,
}

impl Tile {
    pub(super) fn new(at: &Attention<'_>, rows: Range<usize>, heads: Range<usize>) -> Self {
        let seq = at.place[rows.start].0 as usize;
        Self {
            head: seq * at.cache.heads.n_head_kv + heads.start / at.group(),
            rows,
            heads,
        }
    }

    /// Pairs of a row and a head, counted row by row and in a row head by head.
    pub(super) fn n_queries(&self) -> usize {
        self.rows.len() * self.heads.len()
    }

    /// Row and head of query `i`.
    fn query(&self, i: usize) -> (usize, usize) {
        (
            self.rows.start + i / self.heads.len(),
            self.heads.start + i % self.heads.len(),
        )
    }
}

/// The running maximum and partial sums of a query's softmax.
#[derive(Clone, Copy, Debug)]
pub(super) struct Softmax {
    pub(super) max: f32,
    pub(super) sums: [f32; LANES],
}

impl Softmax {
    const NONE: Self = Self {
        max: f32::NEG_INFINITY,
        sums: [0.0; LANES],
    };
}

/// Queries that see the same positions of a block, and the block.
pub(super) struct Step<'a, const N: usize> {
    pub(super) k: RowsOfHead<'a>,
    pub(super) v: RowsOfHead<'a>,
    /// The block's first position.
    pub(super) first: usize,
    /// Positions seen, counted from the block's first.
    pub(super) seen: Range<usize>,
    /// As many elements as a key, with zeros behind up to whole lanes.
    pub(super) q: [&'a [f32]; N],
    /// 0 for none.
    pub(super) cap: f32,
}

/// What of a tile's queries is known after some positions.
#[derive(Debug, Default)]
pub(super) struct States {
    softmax: Vec<Softmax>,
    /// Sum of weighted values of each query, `stride` apart.
    out: Vec<f32>,
}

/// What a thread needs for its queries.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Positions that each query sees.
    seen: Vec<Range<usize>>,
    /// Queries times the factor of scores, `q_stride` apart.
    q: Vec<f32>,
    /// Where in `q` they begin.
    q_first: usize,
    q_stride: usize,
    /// Elements of a value, rounded up to whole lanes.
    stride: usize,
    /// Of the stretch at work.
    part: States,
    /// Of all stretches before it.
    total: States,
    /// Decoded rows, where there is no better way.
    decoded: Vec<f32>,
}

/// The result of a query in a stretch, as floats in a row: maximum, partial sums, weighted values.
pub(super) struct Partial<'a> {
    softmax: Softmax,
    out: &'a [f32],
}

impl<'a> Partial<'a> {
    /// Floats that one takes.
    pub(super) fn len(head_dim_v: usize) -> usize {
        1 + LANES + head_dim_v.next_multiple_of(LANES)
    }

    fn read(floats: &'a [f32]) -> Self {
        let (sums, out) = floats[1..].split_at(LANES);
        Self {
            softmax: Softmax {
                max: floats[0],
                sums: sums.try_into().expect("as many as lanes"),
            },
            out,
        }
    }

    fn write(&self, floats: &mut [f32]) {
        floats[0] = self.softmax.max;
        floats[1..=LANES].copy_from_slice(&self.softmax.sums);
        floats[1 + LANES..].copy_from_slice(self.out);
    }
}

impl Scratch {
    /// All stretches of a tile, one after the other.
    pub(super) fn whole(&mut self, at: &Attention<'_>, tile: &Tile, out: &mut GridMut<'_>) {
        self.prepare(at, tile);
        self.begin(at, tile);
        for stretch in self.stretches() {
            self.run(at, tile, stretch);
            for i in 0..tile.n_queries() {
                if !self.seen_in(i, stretch * STRETCH, STRETCH).is_empty() {
                    let part = Partial {
                        softmax: self.part.softmax[i],
                        out: &self.part.out[i * self.stride..][..self.stride],
                    };
                    self.total.add(at.cpu, i, &part);
                }
            }
        }
        self.finish(tile, out);
    }

    /// One stretch of a tile into `parts`, a [`Partial`] a query.
    pub(super) fn stretch(&mut self, at: &Attention<'_>, tile: &Tile, stretch: usize, parts: &mut [f32]) {
        self.prepare(at, tile);
        if !self.stretches().contains(&stretch) {
            return;
        }
        self.run(at, tile, stretch);
        let len = Partial::len(at.cache.heads.head_dim_v);
        for (i, floats) in parts.chunks_exact_mut(len).take(tile.n_queries()).enumerate() {
            Partial {
                softmax: self.part.softmax[i],
                out: &self.part.out[i * self.stride..][..self.stride],
            }
            .write(floats);
        }
    }

    /// What [`Scratch::stretch`] made of all stretches, in order.
    pub(super) fn merge<'p>(
        &mut self,
        at: &Attention<'_>,
        tile: &Tile,
        stretches: impl Iterator<Item = &'p [f32]>,
        out: &mut GridMut<'_>,
    ) {
        self.look(at, tile);
        self.begin(at, tile);
        let len = Partial::len(at.cache.heads.head_dim_v);
        for (stretch, parts) in stretches.enumerate() {
            for (i, floats) in parts.chunks_exact(len).take(tile.n_queries()).enumerate() {
                if !self.seen_in(i, stretch * STRETCH, STRETCH).is_empty() {
                    self.total.add(at.cpu, i, &Partial::read(floats));
                }
            }
        }
        self.finish(tile, out);
    }

    /// Notes what the queries see.
    fn look(&mut self, at: &Attention<'_>, tile: &Tile) {
        self.stride = at.cache.heads.head_dim_v.next_multiple_of(LANES);
        self.seen.clear();
        self.seen
            .extend((0..tile.n_queries()).map(|i| at.seen(tile.query(i).0)));
    }

    /// The same, and takes the queries.
    fn prepare(&mut self, at: &Attention<'_>, tile: &Tile) {
        self.look(at, tile);
        let dims = &at.cache.heads;
        self.q_stride = dims.head_dim_k.next_multiple_of(LANES);
        self.q.clear();
        let n = tile.n_queries() * self.q_stride;
        self.q.resize(n + LANES - 1, 0.0);
        // A vector in two cache lines takes two reads.
        let aligned = self.q.as_ptr().align_offset(LANES * size_of::<f32>());
        self.q_first = aligned.min(LANES - 1);
        let queries = &mut self.q[self.q_first..][..n];
        for (i, own) in queries.chunks_exact_mut(self.q_stride.max(1)).enumerate() {
            let (row, head) = tile.query(i);
            let q = &at.q[(row * dims.n_head + head) * dims.head_dim_k..][..dims.head_dim_k];
            for (own, q) in own.iter_mut().zip(q) {
                *own = q * dims.scale;
            }
        }
    }

    /// Stretches of which some query sees something, and those between.
    fn stretches(&self) -> Range<usize> {
        let first = self.seen.iter().map(|seen| seen.start).min().unwrap_or(0);
        let end = self.seen.iter().map(|seen| seen.end).max().unwrap_or(0);
        first / STRETCH..end.div_ceil(STRETCH)
    }

    /// What query `i` sees of `n` positions from `first` on, counted from there.
    fn seen_in(&self, i: usize, first: usize, n: usize) -> Range<usize> {
        let part = |pos: usize| pos.saturating_sub(first).min(n);
        part(self.seen[i].start)..part(self.seen[i].end)
    }

    /// Sets the totals to what merging starts from.
    fn begin(&mut self, at: &Attention<'_>, tile: &Tile) {
        self.total.reset(tile.n_queries(), self.stride);
        if let Some(sinks) = at.sinks {
            for (i, softmax) in self.total.softmax.iter_mut().enumerate() {
                softmax.max = sinks[tile.query(i).1];
                softmax.sums[0] = 1.0;
            }
        }
    }

    /// One stretch of all queries.
    fn run(&mut self, at: &Attention<'_>, tile: &Tile, stretch: usize) {
        let n = tile.n_queries();
        self.part.reset(n, self.stride);
        for first in (stretch * STRETCH..(stretch + 1) * STRETCH).step_by(BLOCK) {
            let mut i = 0;
            while i < n {
                let seen = self.seen_in(i, first, BLOCK);
                if seen.is_empty() {
                    i += 1;
                    continue;
                }
                let others = (i + 1..n).take(MOST - 1);
                let alike = others.take_while(|&j| self.seen_in(j, first, BLOCK) == seen);
                i += match 1 + alike.count() {
                    MOST.. => self.step::<MOST>(at, tile, first, i, seen),
                    4 | 7 => self.step::<4>(at, tile, first, i, seen),
                    3 | 5 | 6 => self.step::<3>(at, tile, first, i, seen),
                    2 => self.step::<2>(at, tile, first, i, seen),
                    _ => self.step::<1>(at, tile, first, i, seen),
                };
            }
        }
    }

    /// One block for queries `i..i + N`. Returns `N`.
    fn step<const N: usize>(
        &mut self,
        at: &Attention<'_>,
        tile: &Tile,
        first: usize,
        i: usize,
        seen: Range<usize>,
    ) -> usize {
        let cache = at.cache;
        let q_stride = self.q_stride;
        let k = cache.k.of_head(tile.head);
        let step = Step {
            k,
            v: match &cache.v {
                Some(v) => v.of_head(tile.head),
                None => k.first_elements(cache.heads.head_dim_v),
            },
            first,
            seen,
            q: std::array::from_fn(|j| &self.q[self.q_first + (i + j) * q_stride..][..q_stride]),
            cap: cache.heads.softcap,
        };
        let softmax: &mut [Softmax; N] = (&mut self.part.softmax[i..i + N]).try_into().expect("N of them");
        let out = &mut self.part.out[i * self.stride..(i + N) * self.stride];
        match at.cpu.level().base() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => super::x86::run(&step, softmax, out),
            _ => portable::run(&step, softmax, out, &mut self.decoded),
        }
        N
    }

    /// Writes the results.
    fn finish(&self, tile: &Tile, grid: &mut GridMut<'_>) {
        let n_heads = tile.heads.len();
        for row in 0..tile.rows.len() {
            let out = grid.row_mut(row);
            let dim = out.len() / n_heads;
            for (head, out) in out.chunks_exact_mut(dim.max(1)).enumerate() {
                let i = row * n_heads + head;
                let factor = 1.0 / lane_sum(self.total.softmax[i].sums);
                for (out, sum) in out.iter_mut().zip(&self.total.out[i * self.stride..]) {
                    *out = sum * factor;
                }
            }
        }
    }
}

impl States {
    fn reset(&mut self, n: usize, stride: usize) {
        self.softmax.clear();
        self.softmax.resize(n, Softmax::NONE);
        self.out.clear();
        self.out.resize(n * stride, 0.0);
    }

    /// Adds what is known of query `i` from later positions.
    fn add(&mut self, cpu: Cpu, i: usize, part: &Partial<'_>) {
        let own = &mut self.softmax[i];
        let later = &part.softmax;
        let max = if later.max > own.max { later.max } else { own.max };
        let (factor, later_factor) = (exp_below_0(own.max - max), exp_below_0(later.max - max));
        own.max = max;
        for (sum, later) in own.sums.iter_mut().zip(&later.sums) {
            *sum = *sum * factor + later * later_factor;
        }
        let n = part.out.len();
        let out = &mut self.out[i * n..][..n];
        match cpu.level().base() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => super::x86::mix(out, factor, part.out, later_factor),
            _ => portable::mix(out, factor, part.out, later_factor),
        }
    }
}
