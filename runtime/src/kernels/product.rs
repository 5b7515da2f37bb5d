//! The loops over matrices, rows and columns of a product, and their division among threads.

use std::cell::RefCell;
use std::ops::Range;

use gguf_blocks::kernel::Kernel;
use gguf_blocks::tile::{MAX_COLS, MAX_GROUPS, Panel, ROWS, Tile};
use gguf_blocks::activation::GROUP;
use gguf_blocks::{Cpu, DecodeRow};

use super::acts::Acts;
use super::{Weights, float, int};
use crate::memory::GridMut;

/// Work of a task, in units of about a nanosecond: well above what handing it to another thread costs.
const TASK: usize = 30_000;

/// How the rows of a weight become tiles or panels.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path {
    /// The type has kernels.
    Kernel(Kernel),
    /// The type has none: it is decoded to f32.
    Decoder(DecodeRow),
}

impl Path {
    pub(super) fn of(cpu: Cpu, w: &Weights<'_>) -> Self {
        match ((w.format.kernel)(cpu), w.format.decode) {
            (Some(kernel), _) => Self::Kernel(kernel),
            (None, Some(decode)) => Self::Decoder(decode),
            (None, None) => panic!("type `{}` has no values to multiply", w.format.name),
        }
    }

    pub(super) fn is_int(self) -> bool {
        matches!(self, Self::Kernel(Kernel::Int { .. }))
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
    /// Computes everything; `y` has a row for each pair and a column for each row of a matrix.
    pub(super) fn run(&self, y: GridMut<'_>) {
        self.matrices(0..self.w.n_mats, y);
    }

    /// Products with some matrices; `y` has their pairs.
    fn matrices(&self, mats: Range<usize>, y: GridMut<'_>) {
        if y.n_rows() == 0 {
            return;
        }
        if mats.len() == 1 {
            return self.rows(mats.start, 0, y);
        }
        let middle = mats.start + mats.len() / 2;
        let (first, second) = y.split_rows(self.group_starts[middle] - self.group_starts[mats.start]);
        let serial = self.cost(first.n_rows(), self.w.n_rows).min(self.cost(second.n_rows(), self.w.n_rows)) < TASK / 4;
        let (left, right) = (mats.start..middle, middle..mats.end);
        if serial {
            self.matrices(left, first);
            self.matrices(right, second);
        } else {
            rayon::join(|| self.matrices(left, first), || self.matrices(right, second));
        }
    }

    /// Work of `n_rows` rows with some pairs of one matrix.
    fn cost(&self, pairs: usize, n_rows: usize) -> usize {
        if pairs == 0 {
            return 0;
        }
        let products = if self.path.is_int() { 32 } else { 8 };
        n_rows * (self.row_bytes / 8 + self.w.n_cols * pairs / products)
    }

    /// Products with the rows of a matrix from `first_row` on, as many as `y` has columns.
    fn rows(&self, mat: usize, first_row: usize, y: GridMut<'_>) {
        let n = y.n_cols();
        if n <= ROWS || self.cost(y.n_rows(), n) < 2 * TASK {
            return self.panels(mat, first_row, y);
        }
        let at = (n / 2).next_multiple_of(ROWS);
        let (first, second) = y.split_cols(at);
        rayon::join(|| self.rows(mat, first_row, first), || self.rows(mat, first_row + at, second));
    }

    /// The same on this thread, eight rows at a time.
    fn panels(&self, mat: usize, first_row: usize, mut y: GridMut<'_>) {
        let source = &self.source[self.group_starts[mat]..self.group_starts[mat + 1]];
        let n_rows = y.n_cols();
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.acc.resize(source.len().max(scratch.acc.len()), [0.0; ROWS]);
            for first in (0..n_rows).step_by(ROWS) {
                let rows = std::array::from_fn(|i| {
                    let row = mat * self.w.n_rows + first_row + (first + i).min(n_rows - 1);
                    &self.w.bytes[row * self.row_bytes..][..self.row_bytes]
                });
                let acc = &mut scratch.acc[..source.len()];
                acc.fill([0.0; ROWS]);
                let n = ROWS.min(n_rows - first);
                match self.path {
                    Path::Kernel(Kernel::Int { unpack, kind }) => {
                        let tile = &mut scratch.tile;
                        let n_groups = self.w.n_cols / GROUP;
                        for first_group in (0..n_groups).step_by(MAX_GROUPS) {
                            tile.set_groups(MAX_GROUPS.min(n_groups - first_group));
                            unpack(rows, first_group, tile);
                            int::multiply(self.cpu, kind, tile, self.x, first_group, source, acc);
                        }
                    }
                    Path::Kernel(Kernel::Float { unpack }) => {
                        let panel = &mut scratch.panel;
                        for first_col in (0..self.w.n_cols).step_by(MAX_COLS) {
                            panel.set_cols(MAX_COLS.min(self.w.n_cols - first_col));
                            unpack(rows, first_col, panel);
                            float::multiply(self.cpu, panel, self.x, first_col, source, acc);
                        }
                    }
                    Path::Decoder(decode) => {
                        let panel = &mut scratch.panel;
                        let geometry = self.w.format.geometry;
                        let step = MAX_COLS / geometry.block_elems * geometry.block_elems;
                        for first_col in (0..self.w.n_cols).step_by(step) {
                            panel.set_cols(step.min(self.w.n_cols - first_col));
                            let blocks = |col: usize| col / geometry.block_elems * geometry.block_bytes;
                            let bytes = blocks(first_col)..blocks(first_col + panel.n_cols());
                            unpack_decoded(decode, rows.map(|row| &row[bytes.clone()]), panel, &mut scratch.row);
                            float::multiply(self.cpu, panel, self.x, first_col, source, acc);
                        }
                    }
                }
                for (pair, acc) in acc.iter().enumerate() {
                    y.row_mut(pair)[first..first + n].copy_from_slice(&acc[..n]);
                }
            }
        });
    }
}

/// Fills a panel with a type's decoder; `blocks[i]` are the panel's columns of row `i`.
fn unpack_decoded(decode: DecodeRow, blocks: [&[u8]; ROWS], panel: &mut Panel, row: &mut [f32; MAX_COLS]) {
    let row = &mut row[..panel.n_cols()];
    for (r, blocks) in blocks.into_iter().enumerate() {
        decode(blocks, row);
        for (lanes, &value) in panel.v.iter_mut().zip(&*row) {
            lanes[r] = value;
        }
    }
}

/// What a thread needs for its panels.
struct Scratch {
    tile: Box<Tile>,
    panel: Box<Panel>,
    row: [f32; MAX_COLS],
    /// Sums of each pair.
    acc: Vec<[f32; ROWS]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        tile: Tile::new(),
        panel: Panel::new(),
        row: [0.0; MAX_COLS],
        acc: Vec::new(),
    });
}
