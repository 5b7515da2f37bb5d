//! The loops over matrices, rows and columns of a product, and their division among threads.

use std::cell::RefCell;
use std::ops::Range;

use gguf_blocks::activation::GROUP;
use gguf_blocks::kernel::Kernel;
use gguf_blocks::tile::{MAX_COLS, Panel, ROWS, Tile};
use gguf_blocks::{Cpu, DecodeRow};

use super::acts::Acts;
use super::rows::RowBuffer;
use super::{Weights, float, int};
use crate::memory::GridMut;
use crate::session::Compute;

/// Work of a task, in units of about a nanosecond: well above what handing it to another thread costs.
const TASK: usize = 30_000;

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
    pub(super) fn of(cpu: Cpu, w: &Weights<'_>) -> Self {
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
        let serial = self
            .cost(first.n_rows(), self.w.n_rows)
            .min(self.cost(second.n_rows(), self.w.n_rows))
            < TASK / 4;
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
        rayon::join(
            || self.rows(mat, first_row, first),
            || self.rows(mat, first_row + at, second),
        );
    }

    /// The same on this thread, eight rows at a time.
    fn panels(&self, mat: usize, first_row: usize, mut y: GridMut<'_>) {
        let source = &self.source[self.group_starts[mat]..self.group_starts[mat + 1]];
        let n_rows = y.n_cols();
        SCRATCH.with_borrow_mut(|scratch| {
            scratch
                .acc
                .resize(source.len().max(scratch.acc.len()), [0.0; ROWS]);
            for first in (0..n_rows).step_by(ROWS) {
                let row = |i: usize| mat * self.w.n_rows + first_row + (first + i).min(n_rows - 1);
                let n = ROWS.min(n_rows - first);
                scratch.acc[..source.len()].fill([0.0; ROWS]);
                if matches!(self.path, Path::WholeRows) {
                    self.whole_rows(row(0)..row(0) + n, source, scratch);
                } else {
                    let mut rows: [&[u8]; ROWS] = [&[]; ROWS];
                    for (i, bytes) in rows.iter_mut().enumerate() {
                        *bytes = &self.w.bytes[row(i) * self.row_bytes..][..self.row_bytes];
                    }
                    self.panel(row(0), rows, source, scratch);
                }
                for (pair, acc) in scratch.acc[..source.len()].iter().enumerate() {
                    let out = &mut y.row_mut(pair)[first..first + n];
                    match out.first_chunk_mut() {
                        Some(eight) => *eight = *acc,
                        None => out.copy_from_slice(&acc[..n]),
                    }
                }
            }
        });
    }

    /// Adds the products of eight rows, of which the first is `first_row`, with the activation rows of `source`.
    fn panel(&self, first_row: usize, rows: [&[u8]; ROWS], source: &[u32], scratch: &mut Scratch) {
        let Scratch {
            tile,
            panel,
            row,
            acc,
            ..
        } = scratch;
        let acc = &mut acc[..source.len()];
        let n_cols = self.w.n_cols;
        let geometry = self.w.format.geometry;
        let step = MAX_COLS / geometry.block_elems * geometry.block_elems;
        for first_col in (0..n_cols).step_by(step) {
            let n = step.min(n_cols - first_col);
            let bytes = |col: usize| col / geometry.block_elems * geometry.block_bytes;
            let bytes = bytes(first_col)..bytes(first_col + n);
            self.prefetch(first_row + ROWS, &bytes);
            match self.path {
                Path::Kernel(Kernel::Int { unpack, kind }) => {
                    tile.set_groups(n / GROUP);
                    unpack(rows, first_col / GROUP, tile);
                    int::multiply(self.cpu, kind, tile, self.x, first_col / GROUP, source, acc);
                }
                Path::Kernel(Kernel::Float { unpack, .. }) => {
                    panel.set_cols(n);
                    unpack(rows, first_col, panel);
                    float::multiply(self.cpu, panel, self.x, first_col, source, acc);
                }
                Path::Decoder(decode) => {
                    panel.set_cols(n);
                    decode_panel(decode, rows.map(|row| &row[bytes.clone()]), panel, row);
                    float::multiply(self.cpu, panel, self.x, first_col, source, acc);
                }
                Path::WholeRows => unreachable!("taken by `whole_rows`"),
            }
        }
    }

    /// Adds the products of up to eight rows, which are decoded as a whole.
    fn whole_rows(&self, rows: Range<usize>, source: &[u32], scratch: &mut Scratch) {
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
            for (r, row) in values.chunks_exact(n_cols).enumerate() {
                for (lanes, &value) in panel.v.iter_mut().zip(&row[first_col..first_col + n]) {
                    lanes[r] = value;
                }
            }
            float::multiply(
                self.cpu,
                panel,
                self.x,
                first_col,
                source,
                &mut acc[..source.len()],
            );
        }
    }

    /// Asks for the part of the eight rows from `first_row` on that follows when all parts are taken in the order
    /// of memory; `bytes` is the part of a row that is worked on. The rows lie one after the other, but are read
    /// side by side, which the machine does not foresee.
    fn prefetch(&self, first_row: usize, bytes: &Range<usize>) {
        let start = first_row * self.row_bytes + ROWS * bytes.start;
        let end = (start + ROWS * bytes.len()).min(self.w.bytes.len());
        #[cfg(target_arch = "x86_64")]
        if let Some(part) = self.w.bytes.get(start..end) {
            super::x86::prefetch(part);
        }
    }
}

/// Fills a panel with a type's decoder; `blocks[i]` are the panel's columns of row `i`.
fn decode_panel(decode: DecodeRow, blocks: [&[u8]; ROWS], panel: &mut Panel, row: &mut [f32; MAX_COLS]) {
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
    rows: RowBuffer,
    /// Eight rows in f32.
    values: Vec<f32>,
    /// Sums of each pair.
    acc: Vec<[f32; ROWS]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        tile: Tile::new(),
        panel: Panel::new(),
        row: [0.0; MAX_COLS],
        rows: RowBuffer::default(),
        values: Vec::new(),
        acc: Vec::new(),
    });
}
