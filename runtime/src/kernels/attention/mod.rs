//! Causal attention of many queries over the cache.
//!
//! For each query the positions are taken in stretches of [`STRETCH`] and in these in blocks of [`BLOCK`], both
//! counted from 0, so that no matrix of scores of a whole context is made and a result does not depend on which queries
//! are computed together or by how many threads. Of both those of which a query sees nothing are passed over. Keys and
//! values are read as they are stored and become f32 in registers; each that is read serves up to [`MOST`] queries.
//!
//! All is f32. A product and the sum that it goes to are one operation wherever `fma` is written here (which every
//! level has: `f32::mul_add`), everything else is rounded on its own. A stretch starts with `m` at minus infinity and
//! zeros elsewhere; for each block:
//!
//! * scores: the query times the factor of scores meets the key, `d[j] = fma(k, q, d[j])` over elements in order,
//!   element `e` in partial sum `e % 8`, added up as neighbours, then pairs, then halves; where there is a cap,
//!   `cap * tanh(s / cap)`; minus infinity for positions not seen;
//! * `m' = max(m, all s)`, `c = exp(m - m')`, `p[i] = exp(s[i] - m')`;
//! * eight partial sums `l[j] = fma(l[j], c, sum over i in order of p[8 i + j])`;
//! * each element of the output `o = fma(o, c, w)`, `w = fma(p, v, w)` over seen positions in order from 0.
//!
//! Stretches are merged in order: `m' = max(m, m2)`, then `l = l * exp(m - m') + l2 * exp(m2 - m')` and `o` alike. A sink
//! is what the merging starts from: `m` is the sink and `l[0]` is 1. At the end `o` is multiplied with `1 / l`, `l` being
//! added pairwise.

mod portable;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::cell::RefCell;
use std::ops::Range;

use gguf_blocks::Cpu;

use crate::kv::LayerCache;
use crate::memory::GridMut;
use crate::pool;
use tile::{Partial, Scratch, Tile};

/// Positions of a block.
const BLOCK: usize = 64;
/// Positions of a stretch: whole blocks.
const STRETCH: usize = 4 * BLOCK;
/// Positions whose scores are computed together. A cache has room for whole groups of so many.
pub(crate) const GROUP: usize = 4;
/// Elements and positions that a vector has.
const LANES: usize = 8;
/// Queries that share what is read at most.
const MOST: usize = 8;
/// Queries (pairs of a row and a head) of a task, which find a block of keys and values in the caches.
const QUERIES: usize = 8 * MOST;
/// Work of a task from which on sharing it out pays, in units of about a nanosecond.
const TASK: usize = 15_000;
/// Tasks for each thread from which on stretches need not be shared out.
const TASKS: usize = 4;

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

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// Results of stretches that are not merged yet.
    static PARTIAL: RefCell<Vec<f32>> = RefCell::default();
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
        let out = GridMut::new(out, dims.n_head * dims.head_dim_v);
        let seen: usize = (0..n).map(|row| self.seen(row).len()).sum();
        let work = seen * dims.n_head * (dims.head_dim_k + dims.head_dim_v) / 32;
        let n_threads = if work > 2 * TASK { pool::n_threads() } else { 1 };
        if n_threads > 1 && self.tiles().count() < TASKS * n_threads {
            return self.by_stretches(out);
        }
        let whole = |(tile, mut out)| SCRATCH.with_borrow_mut(|s| s.whole(self, &tile, &mut out));
        if n_threads > 1 {
            pool::for_each(self.tiles_with(out), whole);
        } else {
            self.tiles_with(out).for_each(whole);
        }
    }

    /// Computes stretches apart, then merges them.
    fn by_stretches(&self, out: GridMut<'_>) {
        let ends = (0..self.place.len()).map(|row| self.seen(row).end);
        let n_stretches = ends.max().unwrap_or(0).div_ceil(STRETCH).max(1);
        let of_query = Partial::len(self.cache.heads.head_dim_v);
        let n_queries = self.tiles().map(|tile| tile.n_queries()).max().unwrap_or(0);
        let mut partials = PARTIAL.take();
        partials.resize(self.tiles().count() * n_stretches * n_queries * of_query, 0.0);
        let parts = partials.chunks_exact_mut(n_queries * of_query);
        let stretches = self
            .tiles()
            .flat_map(|tile| (0..n_stretches).map(move |stretch| (tile.clone(), stretch)));
        pool::for_each(stretches.zip(parts), |((tile, stretch), part)| {
            SCRATCH.with_borrow_mut(|s| s.stretch(self, &tile, stretch, part));
        });
        let parts = partials.chunks_exact(n_stretches * n_queries * of_query);
        pool::for_each(self.tiles_with(out).zip(parts), |((tile, mut out), parts)| {
            let parts = parts.chunks_exact(n_queries * of_query);
            SCRATCH.with_borrow_mut(|s| s.merge(self, &tile, parts, &mut out));
        });
        PARTIAL.set(partials);
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

    /// Rows of one sequence that follow each other from `first` on, as many as a task takes.
    fn rows_of_task(&self, first: usize) -> Range<usize> {
        let most = (QUERIES / self.group()).max(1);
        let rest = &self.place[first..];
        let n = rest.iter().take(most).take_while(|p| p.0 == rest[0].0).count();
        first..first + n
    }

    /// All work in pieces: rows after rows, in these head after head.
    fn tiles(&self) -> impl Iterator<Item = Tile> + Send {
        let mut first = 0;
        let rows = std::iter::from_fn(move || {
            let rows = (first < self.place.len()).then(|| self.rows_of_task(first))?;
            first = rows.end;
            Some(rows)
        });
        rows.flat_map(move |rows| {
            self.heads()
                .map(move |heads| Tile::new(self, rows.clone(), heads))
        })
    }

    /// The same with the part of the output that is each one's.
    fn tiles_with<'o>(&self, out: GridMut<'o>) -> impl Iterator<Item = (Tile, GridMut<'o>)> + Send {
        let dim = self.cache.heads.head_dim_v;
        let (mut below, mut right) = (Some(out), None);
        self.tiles().map(move |tile| {
            let of_rows = right.take().filter(|_| tile.heads.start > 0).unwrap_or_else(|| {
                let rest = below.take().expect("there is a row for each of the batch");
                let (rows, rest) = rest.split_rows(tile.rows.len());
                below = Some(rest);
                rows
            });
            let (own, rest) = of_rows.split_cols(tile.heads.len() * dim);
            right = Some(rest);
            (tile, own)
        })
    }

    /// Query heads of tasks: those of one key head, or as many of them as a task takes.
    fn heads(&self) -> impl Iterator<Item = Range<usize>> + Send + use<> {
        let (group, n_head) = (self.group(), self.cache.heads.n_head);
        let mut first = 0;
        std::iter::from_fn(move || {
            let end = (first / group.max(1) + 1) * group;
            let heads = first..end.min(first + QUERIES);
            first = heads.end;
            (heads.start < n_head).then_some(heads)
        })
    }
}

#[cfg(all(test, unix, target_arch = "x86_64"))]
mod guard_tests;
#[cfg(test)]
mod tests;
