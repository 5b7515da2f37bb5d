//! The loops over matrices, rows and columns of a product, and their division among threads.

use std::cell::RefCell;
use std::ops::Range;

use gguf_blocks::activation::GROUP;
use gguf_blocks::kernel::{IntKernel, Kernel};
use gguf_blocks::tile::{MAX_COLS, MAX_GROUPS, Panel, ROWS, Tile};
use gguf_blocks::{Cpu, DecodeRow};

use super::acts::{Acts, panels};
use super::rows::RowBuffer;
use super::{Weights, float};
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
                let mut rows: [&[u8]; ROWS] = [&[]; ROWS];
                for (i, bytes) in rows.iter_mut().enumerate() {
                    *bytes = &self.w.bytes[row(i) * self.row_bytes..][..self.row_bytes];
                }
                match self.path {
                    Path::WholeRows => self.whole_rows(row(0)..row(0) + n, source, scratch),
                    Path::Kernel(Kernel::Int(kernel)) => {
                        let pairs = self.group_starts[mat]..self.group_starts[mat + 1];
                        self.int_panel(kernel, row(0), rows, pairs, scratch);
                    }
                    _ => self.float_panel(row(0), rows, source, scratch),
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

    /// Adds the products of eight rows, of which the first is `first_row`, with the columns of some pairs.
    fn int_panel(
        &self,
        kernel: IntKernel,
        first_row: usize,
        rows: [&[u8]; ROWS],
        pairs: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let (tile, acc) = (&mut scratch.tile, &mut scratch.acc[..pairs.len()]);
        let n_groups = self.w.n_cols / GROUP;
        if let [acc] = acc {
            let x = self
                .x
                .panel((pairs.start, 1), self.source[pairs.start], 0, n_groups);
            let ahead = self.ahead(first_row + ROWS, &(0..self.row_bytes));
            return (kernel.dot)(rows, ahead, x, tile, acc);
        }
        let row_bytes = self.row_bytes;
        for first in (0..n_groups).step_by(MAX_GROUPS) {
            let n = MAX_GROUPS.min(n_groups - first);
            let bytes = first * row_bytes / n_groups..(first + n) * row_bytes / n_groups;
            self.prefetch(first_row + ROWS, &bytes);
            tile.set_groups(n);
            (kernel.unpack)(rows, first, tile);
            for (at, width) in panels(pairs.len()) {
                let pair = pairs.start + at;
                let x = self.x.panel((pair, width), self.source[pair], first, n);
                (kernel.multiply)(tile, x, &mut acc[at..at + width]);
            }
        }
    }

    /// Adds the products of eight rows, of which the first is `first_row`, with the activation rows of `source`.
    fn float_panel(&self, first_row: usize, rows: [&[u8]; ROWS], source: &[u32], scratch: &mut Scratch) {
        let Scratch { panel, acc, .. } = scratch;
        let acc = &mut acc[..source.len()];
        let n_cols = self.w.n_cols;
        let geometry = self.w.format.geometry;
        let step = MAX_COLS / geometry.block_elems * geometry.block_elems;
        for first_col in (0..n_cols).step_by(step) {
            let n = step.min(n_cols - first_col);
            let bytes = |col: usize| col / geometry.block_elems * geometry.block_bytes;
            let bytes = bytes(first_col)..bytes(first_col + n);
            self.prefetch(first_row + ROWS, &bytes);
            panel.set_cols(n);
            match self.path {
                Path::Kernel(Kernel::Float { unpack, .. }) => unpack(rows, first_col, panel),
                Path::Decoder(decode) => {
                    for (row, out) in rows.into_iter().zip(&mut panel.v) {
                        decode(&row[bytes.clone()], &mut out[..n]);
                    }
                }
                _ => unreachable!("taken by other paths"),
            }
            float::multiply(self.cpu, panel, self.x, first_col, source, acc);
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
            for (row, out) in values.chunks_exact(n_cols).zip(&mut panel.v) {
                out[..n].copy_from_slice(&row[first_col..first_col + n]);
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
        #[cfg(target_arch = "x86_64")]
        super::x86::prefetch(self.ahead(first_row, bytes));
    }

    fn ahead(&self, first_row: usize, bytes: &Range<usize>) -> &[u8] {
        let start = first_row * self.row_bytes + ROWS * bytes.start;
        let end = (start + ROWS * bytes.len()).min(self.w.bytes.len());
        self.w.bytes.get(start..end).unwrap_or_default()
    }
}

/// What a thread needs for its panels.
struct Scratch {
    tile: Box<Tile>,
    panel: Box<Panel>,
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
        rows: RowBuffer::default(),
        values: Vec::new(),
        acc: Vec::new(),
    });
}
