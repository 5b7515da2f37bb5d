//! Which numbers of a checkpoint a matrix of the output is made of: some rows and columns of a stored matrix, perhaps
//! transposed, perhaps with an operation on each value.
//!
//! A view is decided in the plan and read in pieces, any rows at any time, so that nothing depends on the size of a
//! tensor. Rows here are always those of the output's matrix, row length first in GGUF's order.

use std::ops::Range;
use std::sync::Arc;

use gguf::source::Source;
use gguf_blocks::Format;
use gguf_models::hf::Op;

use crate::Result;
use crate::source::Stored;

/// The open files of a checkpoint.
pub(crate) type Files = [Arc<dyn Source>];

/// Some indices of an axis, in the order in which a view takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Select {
    /// Groups of `len` neighbours, `step` apart, from `first` on: all rows, a half of them, every second one, a part
    /// of each head.
    Groups {
        /// The first index.
        first: u64,
        /// Neighbours in a group.
        len: u64,
        /// From the start of a group to the start of the next.
        step: u64,
        /// How many indices in all.
        n: u64,
    },
    /// Heads of `head_dim` indices whose halves are interleaved: index `2 j + s` of a head is `s head_dim / 2 + j`.
    /// Turns rows for rotation of halves (NEOX) into rows for rotation of neighbours (NORM).
    Interleaved {
        /// Indices of a head.
        head_dim: u64,
        /// How many indices in all.
        n: u64,
    },
}

impl Select {
    /// `n` neighbours from `first` on.
    pub(crate) fn span(first: u64, n: u64) -> Self {
        let len = n.max(1);
        Self::Groups {
            first,
            len,
            step: len,
            n,
        }
    }

    /// How many.
    pub(crate) fn n(self) -> u64 {
        match self {
            Self::Groups { n, .. } | Self::Interleaved { n, .. } => n,
        }
    }

    /// The index in place `i`, which is below [`Self::n`].
    pub(crate) fn index(self, i: u64) -> u64 {
        match self {
            Self::Groups { first, len, step, .. } => first + i / len * step + i % len,
            Self::Interleaved { head_dim, .. } => {
                let within = i % head_dim;
                i - within + within % 2 * (head_dim / 2) + within / 2
            }
        }
    }

    /// Stretches of neighbouring indices that places `of` stand for, in order.
    pub(crate) fn runs(self, of: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let mut at = of.start;
        std::iter::from_fn(move || {
            if at >= of.end {
                return None;
            }
            let first = self.index(at);
            let n = match self {
                Self::Groups { len, step, .. } if len != step => len - at % len,
                Self::Groups { .. } => of.end - at,
                Self::Interleaved { .. } => 1,
            };
            let n = n.min(of.end - at);
            at += n;
            Some(first..first + n)
        })
    }
}

/// A matrix of the output.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Where the numbers are.
    pub(crate) stored: Stored,
    /// Rows of the stored matrix.
    pub(crate) rows: Select,
    /// Columns of the stored matrix.
    pub(crate) cols: Select,
    /// Whether the selected columns are the view's rows.
    pub(crate) transpose: bool,
    /// What happens to every value.
    pub(crate) op: Op,
}

impl View {
    /// A whole stored matrix as it is.
    pub(crate) fn whole(stored: Stored) -> Self {
        Self {
            rows: Select::span(0, stored.n_rows),
            cols: Select::span(0, stored.n_cols),
            stored,
            transpose: false,
            op: Op::Keep,
        }
    }

    /// Rows of the view.
    pub(crate) fn n_rows(&self) -> u64 {
        let of = if self.transpose { self.cols } else { self.rows };
        of.n()
    }

    /// Elements of a row of the view.
    pub(crate) fn n_cols(&self) -> u64 {
        let of = if self.transpose { self.rows } else { self.cols };
        of.n()
    }

    /// The GGUF type whose blocks the rows are taken as without a change of any value, if there is one: see
    /// [`Stored::native`].
    pub(crate) fn native(&self) -> Option<&'static Format> {
        self.stored.native().filter(|_| self.is_whole_rows())
    }

    /// The GGUF type that the rows can be put into without a change of any value: see [`Stored::repack`].
    pub(crate) fn repack(&self) -> Option<&'static Format> {
        self.stored.repack().filter(|_| self.is_whole_rows())
    }

    /// The same, with [`Self::repack`] as its native type where there is one.
    pub(crate) fn repacked(mut self) -> Self {
        if self.is_whole_rows() {
            self.stored = self.stored.repacked();
        }
        self
    }

    /// Whether rows are those of the stored matrix, in any order, with nothing done to them.
    fn is_whole_rows(&self) -> bool {
        self.cols == Select::span(0, self.stored.n_cols) && !self.transpose && self.op == Op::Keep
    }

    /// Rows from `first` on as the blocks of [`Self::native`], as many as `out` has room for.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn read_native(&self, files: &Files, first: u64, out: &mut [u8]) -> Result<()> {
        let native = self.native().expect("asked for where there is a native type");
        let row_bytes = native.geometry.row_bytes(self.n_cols()).expect("whole blocks") as usize;
        let n = (out.len() / row_bytes.max(1)) as u64;
        let mut rest = out;
        for run in self.rows.runs(first..first + n) {
            let (part, after) = rest.split_at_mut((run.end - run.start) as usize * row_bytes);
            self.stored.read_native(files, run.start, part)?;
            rest = after;
        }
        Ok(())
    }

    /// The values of rows from `first` on, as many as `values` has room for.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn read(&self, files: &Files, first: u64, values: &mut [f32]) -> Result<()> {
        let n_cols = self.n_cols().max(1) as usize;
        let rows = first..first + (values.len() / n_cols) as u64;
        if self.transpose {
            self.read_transposed(files, rows, values)?;
        } else {
            let mut rest = &mut *values;
            for run in self.rows.runs(rows) {
                let (part, after) = rest.split_at_mut((run.end - run.start) as usize * n_cols);
                self.read_block(files, run, self.cols, part)?;
                rest = after;
            }
        }
        match self.op {
            Op::Keep => {}
            Op::AddOne => values.iter_mut().for_each(|x| *x += 1.0),
            Op::NegExp => values.iter_mut().for_each(|x| *x = -x.exp()),
        }
        Ok(())
    }

    /// Some columns of stored rows that are neighbours.
    fn read_block(&self, files: &Files, rows: Range<u64>, cols: Select, values: &mut [f32]) -> Result<()> {
        let n = cols.n();
        let runs: Vec<_> = cols.runs(0..n).collect();
        if let [run] = runs.as_slice() {
            return self.stored.read(files, rows, run.clone(), values);
        }
        // Columns that are not neighbours are read with what lies between them.
        let (starts, ends) = (runs.iter().map(|r| r.start), runs.iter().map(|r| r.end));
        let span = starts.min().unwrap_or(0)..ends.max().unwrap_or(0);
        let width = (span.end - span.start) as usize;
        let mut wide = vec![0.0; width * (rows.end - rows.start) as usize];
        self.stored.read(files, rows, span.clone(), &mut wide)?;
        for (row, wide) in values.chunks_exact_mut(n as usize).zip(wide.chunks_exact(width)) {
            for (value, i) in row.iter_mut().zip(0..n) {
                *value = wide[(cols.index(i) - span.start) as usize];
            }
        }
        Ok(())
    }

    fn read_transposed(&self, files: &Files, rows: Range<u64>, values: &mut [f32]) -> Result<()> {
        let n_cols = self.n_cols() as usize;
        // The view's rows are these stored columns; they are read with what lies between them.
        let cols: Vec<u64> = rows.map(|row| self.cols.index(row)).collect();
        let span = cols.iter().min().map_or(0, |c| *c)..cols.iter().max().map_or(0, |c| c + 1);
        let width = (span.end - span.start) as usize;
        let mut tile = vec![0.0; width * TILE_ROWS.min(n_cols.max(1))];
        let mut at = 0;
        for run in self.rows.runs(0..self.rows.n()) {
            let mut start = run.start;
            while start < run.end {
                let end = run.end.min(start + TILE_ROWS as u64);
                let tile = &mut tile[..(end - start) as usize * width];
                self.stored.read(files, start..end, span.clone(), tile)?;
                for (j, tile) in tile.chunks_exact(width).enumerate() {
                    for (i, col) in cols.iter().enumerate() {
                        values[i * n_cols + at + j] = tile[(col - span.start) as usize];
                    }
                }
                at += (end - start) as usize;
                start = end;
            }
        }
        Ok(())
    }
}

/// Rows of a tile that is turned at once.
const TILE_ROWS: usize = 64;
