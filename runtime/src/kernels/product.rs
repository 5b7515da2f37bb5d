//! The loops over matrices, rows and columns of a product, and their division among threads.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use gguf_blocks::activation::GROUP;
use gguf_blocks::kernel::{IntKernel, Kernel, prefetch};
use gguf_blocks::tile::{MAX_COLS, MAX_GROUPS, Panel, ROWS, Spread, Tile};
use gguf_blocks::{Cpu, DecodeRow};

use super::acts::{Acts, panels};
use super::rows::RowBuffer;
use super::{Weights, float};
use crate::memory::GridMut;
use crate::pool;
use crate::session::Compute;

/// Work that is worth sharing out, in units of about a nanosecond: well above what handing it to another thread costs.
const TASK: usize = 10_000;

/// The smallest piece of work, in the same unit: what threads wait for one another in the end.
const PIECE: usize = 8_000;

/// Pieces of work for each thread at most, if all were of the same size.
const PIECES: usize = 16;

/// Panels of eight rows that are worked on together at least: results are written in whole lines of the caches.
const MIN_PANELS: usize = 4;

/// Sums that a thread works on, about: with tiles and activations they are to fit into the second cache.
const MAX_SUMS: usize = 4096;

/// What of a piece of work nobody has taken. Threads take parts of it, the more the more is left: few of them as long as it
/// is large, so that coming rows are fetched in one go, and small ones in the end, for which threads wait.
struct Share {
    left: AtomicUsize,
    n_threads: usize,
    /// The smallest part.
    least: usize,
}

impl Share {
    fn new(cost: usize, n_threads: usize) -> Self {
        Self {
            left: AtomicUsize::new(cost),
            n_threads,
            least: PIECE.max(cost / (n_threads * PIECES)),
        }
    }

    /// How many of the `n` rows left of a matrix, of which each costs `of_row`, are the next part.
    fn rows(&self, of_row: usize, n: usize) -> usize {
        // Parts are taken one after the other, by threads that hold a lock in turn.
        let left = self.left.load(Ordering::Relaxed);
        let cost = (left / (2 * self.n_threads)).max(self.least);
        let wanted = (cost / of_row.max(1) + 1).next_multiple_of(MIN_PANELS * ROWS);
        // What would be left alone is too little for a part.
        let rows = if wanted + MIN_PANELS * ROWS / 2 < n {
            wanted
        } else {
            n
        };
        self.left
            .store(left.saturating_sub(rows * of_row), Ordering::Relaxed);
        rows
    }
}

/// How the rows of a weight become tiles or panels.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path {
    /// The type has kernels.
    Kernel(Kernel),
    /// The type has none: it is decoded to f32.
    Decoder(DecodeRow),
    /// The same for a type whose rows cannot be taken in parts.
    WholeRows,
}

impl Path {
    /// The kernels for a weight that is multiplied with rows of `n_cols` elements.
    pub(super) fn of(cpu: Cpu, w: &Weights<'_>, n_cols: usize) -> Self {
        assert_eq!(
            n_cols, w.n_cols,
            "activation rows and weight rows have one length"
        );
        let kernel = match w.compute {
            Compute::Fast => (w.format.kernel)(cpu),
            Compute::F32 => None,
        };
        match (kernel, w.format.decode) {
            (Some(kernel), _) => Self::Kernel(kernel),
            (None, Some(_)) if !w.format.geometry.is_plain() => Self::WholeRows,
            (None, Some(decode)) => Self::Decoder(decode),
            (None, None) => panic!("type `{}` has no values to multiply", w.format.name),
        }
    }

    /// Whether both need the same form of activations.
    pub(super) fn takes_the_same(self, other: Self) -> bool {
        let rounding = |path| match path {
            Self::Kernel(Kernel::Float { round, .. }) => round,
            _ => None,
        };
        let same_rounding = match (rounding(self), rounding(other)) {
            (Some(a), Some(b)) => std::ptr::fn_addr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        self.is_int() == other.is_int() && same_rounding
    }

    pub(super) fn is_int(self) -> bool {
        matches!(self, Self::Kernel(Kernel::Int(_)))
    }
}

/// One product: which pairs of matrix and activation row there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product<'a> {
    pub(super) cpu: Cpu,
    pub(super) path: Path,
    pub(super) w: Weights<'a>,
    pub(super) row_bytes: usize,
    pub(super) x: &'a Acts,
    /// Activation row of each pair.
    pub(super) source: &'a [u32],
    /// Pairs of each matrix.
    pub(super) group_starts: &'a [usize],
}

impl Product<'_> {
    /// Computes everything, all products as one piece of work; `y` of each has a row for each pair and a column for
    /// each row of a matrix.
    pub(super) fn run_each<const N: usize>(products: &[Self; N], y: [GridMut<'_>; N]) {
        let cost = |product: &Self| -> usize { (0..product.w.n_mats).map(|mat| product.cost(mat)).sum() };
        let cost: usize = products.iter().map(cost).sum();
        let share = &Share::new(cost, pool::n_threads());
        let each = products.iter().zip(y);
        let pieces = each.flat_map(|(product, y)| {
            let pieces = product.pieces(y, share);
            pieces.map(move |piece| (product, piece))
        });
        let compute = |(product, (mat, first_row, y)): (&Self, (usize, usize, _))| {
            product.panels(mat, first_row, y);
        };
        if cost < TASK {
            pieces.for_each(compute);
        } else {
            pool::for_each(pieces, compute);
        }
    }

    /// The matrices that have pairs, cut into rows: matrix, first row and place of the results.
    fn pieces<'y>(
        &self,
        y: GridMut<'y>,
        share: &Share,
    ) -> impl Iterator<Item = (usize, usize, GridMut<'y>)> + Send {
        let mut rest = Some(y);
        let n_rows = self.w.n_rows;
        let has_work = move |&mat: &usize| n_rows > 0 && self.group_starts[mat] < self.group_starts[mat + 1];
        let mats = (0..self.w.n_mats).filter(has_work);
        mats.flat_map(move |mat| {
            let n_pairs = self.group_starts[mat + 1] - self.group_starts[mat];
            let (of_mat, others) = rest.take().expect("put back below").split_rows(n_pairs);
            rest = Some(others);
            let of_row = self.cost(mat) / n_rows;
            let (mut left, mut first) = (Some(of_mat), 0);
            std::iter::from_fn(move || {
                let of_rest = left.take()?;
                let n = share.rows(of_row, n_rows - first);
                let (part, others) = of_rest.split_cols(n);
                let piece = (mat, first, part);
                first += n;
                left = (first < n_rows).then_some(others);
                Some(piece)
            })
        })
    }

    /// Work with a matrix, in units of about a nanosecond.
    fn cost(&self, mat: usize) -> usize {
        let pairs = self.group_starts[mat + 1] - self.group_starts[mat];
        if pairs == 0 {
            return 0;
        }
        let products = if self.path.is_int() { 32 } else { 8 };
        self.w.n_rows * (self.row_bytes / 8 + self.w.n_cols * pairs / products)
    }

    /// Products with the rows of a matrix from `first_row` on, as many as `y` has columns: some panels of eight rows at
    /// a time, so that parts of the activations are used more than once while they are near, and results are written in
    /// whole lines of the caches.
    fn panels(&self, mat: usize, first_row: usize, mut y: GridMut<'_>) {
        let pairs = self.group_starts[mat]..self.group_starts[mat + 1];
        let n_rows = y.n_cols();
        SCRATCH.with_borrow_mut(|scratch| {
            let step = self.n_panels(pairs.len()) * ROWS;
            let n_sums = step / ROWS * pairs.len();
            scratch.acc.resize(n_sums.max(scratch.acc.len()), [0.0; ROWS]);
            for first in (0..n_rows).step_by(step) {
                let n = n_rows.min(first + step) - first;
                let n_panels = n.div_ceil(ROWS);
                let start = mat * self.w.n_rows + first_row + first;
                scratch.acc[..n_panels * pairs.len()].fill([0.0; ROWS]);
                self.block(start..start + n, &pairs, scratch);
                for (at, width) in self.together(pairs.len()) {
                    let acc = &scratch.acc[at * n_panels..];
                    for c in 0..width {
                        let out = &mut y.row_mut(at + c)[first..first + n];
                        for (panel, out) in out.chunks_mut(ROWS).enumerate() {
                            let acc = &acc[panel * width + c];
                            match out.first_chunk_mut() {
                                Some(eight) => *eight = *acc,
                                None => out.copy_from_slice(&acc[..out.len()]),
                            }
                        }
                    }
                }
            }
        });
    }

    /// Panels that are worked on together for `n_pairs` pairs: as many as share what a level makes of activations first.
    fn n_panels(&self, n_pairs: usize) -> usize {
        let Path::Kernel(Kernel::Int(kernel)) = self.path else {
            return MIN_PANELS;
        };
        let n = (MAX_SUMS / n_pairs).clamp(MIN_PANELS, kernel.together.max(MIN_PANELS));
        n / MIN_PANELS * MIN_PANELS
    }

    /// Which of `n` pairs are multiplied together: the first, and how many.
    fn together(&self, n: usize) -> impl Iterator<Item = (usize, usize)> {
        let all = (!self.path.is_int()).then_some((0, n));
        all.into_iter()
            .chain(panels(if self.path.is_int() { n } else { 0 }))
    }

    /// Adds the products of some panels of rows, counted over all matrices, with the columns of some pairs.
    fn block(&self, rows: Range<usize>, pairs: &Range<usize>, scratch: &mut Scratch) {
        match self.path {
            Path::WholeRows => self.whole_rows(rows, pairs, scratch),
            Path::Kernel(Kernel::Int(kernel)) if pairs.len() == 1 => {
                self.dots(kernel, rows, pairs.start, scratch);
            }
            Path::Kernel(Kernel::Int(kernel)) => self.int_block(kernel, rows, pairs, scratch),
            Path::Kernel(Kernel::Float { dot, .. }) if pairs.len() == 1 => {
                let x = self.x.row(self.source[pairs.start] as usize);
                for panel in 0..rows.len().div_ceil(ROWS) {
                    let ahead = self.panel_ahead(&rows, panel);
                    dot(self.panel(&rows, panel), ahead, x, &mut scratch.acc[panel]);
                }
            }
            _ => self.float_block(rows, pairs, scratch),
        }
    }

    /// The bytes of the rows of a panel of `rows`; a short last panel repeats its last row.
    fn panel(&self, rows: &Range<usize>, panel: usize) -> [&[u8]; ROWS] {
        let mut bytes: [&[u8]; ROWS] = [&[]; ROWS];
        for (i, bytes) in bytes.iter_mut().enumerate() {
            let row = (rows.start + panel * ROWS + i).min(rows.end - 1);
            *bytes = &self.w.bytes[row * self.row_bytes..][..self.row_bytes];
        }
        bytes
    }

    /// Products of integer types with one column.
    fn dots(&self, kernel: IntKernel, rows: Range<usize>, pair: usize, scratch: &mut Scratch) {
        let x = self
            .x
            .panel((pair, 1), self.source[pair], 0, self.w.n_cols / GROUP);
        for panel in 0..rows.len().div_ceil(ROWS) {
            let ahead = self.panel_ahead(&rows, panel);
            let bytes = self.panel(&rows, panel);
            (kernel.dot)(bytes, ahead, x, &mut scratch.tile, &mut scratch.acc[panel]);
        }
    }

    /// Products of integer types with several columns.
    fn int_block(&self, kernel: IntKernel, rows: Range<usize>, pairs: &Range<usize>, scratch: &mut Scratch) {
        let n_groups = self.w.n_cols / GROUP;
        let n_panels = rows.len().div_ceil(ROWS);
        let Scratch {
            tiles, spread, acc, ..
        } = scratch;
        if tiles.len() < n_panels {
            tiles.resize(n_panels, *Tile::new());
        }
        let tiles = &mut tiles[..n_panels];
        for first in (0..n_groups).step_by(MAX_GROUPS) {
            let n = MAX_GROUPS.min(n_groups - first);
            for (panel, tile) in tiles.iter_mut().enumerate() {
                self.prefetch_next(&rows, panel, first * GROUP, n * GROUP);
                tile.set_groups(n);
                (kernel.unpack)(self.panel(&rows, panel), first, tile);
            }
            for (at, width) in self.together(pairs.len()) {
                let pair = pairs.start + at;
                let x = self.x.panel((pair, width), self.source[pair], first, n);
                let acc = &mut acc[at * n_panels..(at + width) * n_panels];
                (kernel.multiply)(tiles, x, spread, acc);
            }
        }
    }

    /// Products of rows that become f32 in parts.
    fn float_block(&self, rows: Range<usize>, pairs: &Range<usize>, scratch: &mut Scratch) {
        let Scratch { panel, acc, .. } = scratch;
        let (n_cols, block_elems) = (self.w.n_cols, self.w.format.geometry.block_elems);
        let step = MAX_COLS / block_elems * block_elems;
        let n_panels = rows.len().div_ceil(ROWS);
        for first_col in (0..n_cols).step_by(step) {
            let n = step.min(n_cols - first_col);
            let bytes = self.byte(first_col)..self.byte(first_col + n);
            panel.set_cols(n);
            for (i, acc) in acc.chunks_mut(pairs.len()).take(n_panels).enumerate() {
                self.prefetch_next(&rows, i, first_col, n);
                let rows = self.panel(&rows, i);
                match self.path {
                    Path::Kernel(Kernel::Float { unpack, .. }) => unpack(rows, first_col, panel),
                    Path::Decoder(decode) => {
                        for (row, out) in rows.into_iter().zip(&mut panel.v) {
                            decode(&row[bytes.clone()], &mut out[..n]);
                        }
                    }
                    _ => unreachable!("taken by other paths"),
                }
                float::multiply(
                    self.cpu,
                    panel,
                    self.x,
                    first_col,
                    &self.source[pairs.clone()],
                    acc,
                );
            }
        }
    }

    /// Products of rows that are decoded as a whole.
    fn whole_rows(&self, rows: Range<usize>, pairs: &Range<usize>, scratch: &mut Scratch) {
        let Scratch {
            panel,
            acc,
            rows: buffer,
            values,
            ..
        } = scratch;
        let n_cols = self.w.n_cols;
        values.resize(rows.len() * n_cols, 0.0);
        buffer.decode(&self.w, rows, values);
        for first_col in (0..n_cols).step_by(MAX_COLS) {
            let n = MAX_COLS.min(n_cols - first_col);
            panel.set_cols(n);
            for (values, acc) in values.chunks(ROWS * n_cols).zip(acc.chunks_mut(pairs.len())) {
                for (row, out) in values.chunks_exact(n_cols).zip(&mut panel.v) {
                    out[..n].copy_from_slice(&row[first_col..first_col + n]);
                }
                float::multiply(
                    self.cpu,
                    panel,
                    self.x,
                    first_col,
                    &self.source[pairs.clone()],
                    acc,
                );
            }
        }
    }

    /// Where in a row the block with column `col` begins.
    fn byte(&self, col: usize) -> usize {
        let geometry = self.w.format.geometry;
        col / geometry.block_elems * geometry.block_bytes
    }

    /// Asks the caches for what follows the `n` columns from `first` on in a panel of `rows`, or, behind the last, for the
    /// first ones of the panel that many rows further on. Rows are read side by side, which the machine does not foresee,
    /// so this is asked for with each part that is worked on.
    fn prefetch_next(&self, rows: &Range<usize>, panel: usize, first: usize, n: usize) {
        let (start, first) = if first + n < self.w.n_cols {
            (rows.start, first + n)
        } else {
            (rows.end, 0)
        };
        let (from, to) = (self.byte(first), self.byte((first + n).min(self.w.n_cols)));
        for row in start + panel * ROWS..start + (panel + 1) * ROWS {
            prefetch(self.ahead(row * self.row_bytes + from, to - from));
        }
    }

    /// What lies behind a panel of `rows`: the next.
    fn panel_ahead(&self, rows: &Range<usize>, panel: usize) -> &[u8] {
        let next = (rows.start + (panel + 1) * ROWS) * self.row_bytes;
        self.ahead(next, ROWS * self.row_bytes)
    }

    /// `n` bytes from byte `start` on, or as many as there are.
    fn ahead(&self, start: usize, n: usize) -> &[u8] {
        let end = start.saturating_add(n).min(self.w.bytes.len());
        self.w.bytes.get(start..end).unwrap_or_default()
    }
}

/// What a thread needs for its panels.
struct Scratch {
    tile: Box<Tile>,
    tiles: Vec<Tile>,
    spread: Spread,
    panel: Box<Panel>,
    rows: RowBuffer,
    /// Rows in f32.
    values: Vec<f32>,
    /// Sums: of each few pairs that are multiplied together, for each panel, those of each pair.
    acc: Vec<[f32; ROWS]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        tile: Tile::new(),
        tiles: Vec::new(),
        spread: Spread::new(),
        panel: Panel::new(),
        rows: RowBuffer::default(),
        values: Vec::new(),
        acc: Vec::new(),
    });
}
