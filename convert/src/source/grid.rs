//! Scales and zero points of a matrix: one for a block of rows and columns.

use std::ops::Range;

use super::method::Strategy;
use super::numbers::{Data, is_number};
use super::safetensors::Entry;
use crate::Result;
use crate::error::Error;
use crate::view::Files;

/// Numbers of a matrix, each of which counts for a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub(super) data: Data,
    /// Rows of the matrix that a number counts for.
    pub(super) block_rows: u64,
    /// Columns of the matrix that a number counts for.
    pub(super) block_cols: u64,
    /// Rows of numbers.
    pub(super) n_rows: u64,
    /// Numbers of a row.
    pub(super) n_cols: u64,
    /// Numbers of a matrix of the stack; 0 if all share theirs.
    pub(super) per_matrix: u64,
}

impl Grid {
    /// The grid that a tensor of scales is for weights of `shape` (row length last, two dimensions or more).
    ///
    /// # Errors
    /// Numbers of a format that is not read, and a shape that none of the strategies has.
    pub(super) fn new(weights: &str, shape: &[u64], scales: &Entry, strategies: &[Strategy]) -> Result<Self> {
        if !is_number(scales.data.dtype) {
            let object = format!("dtype of tensor `{}`", scales.name);
            return Err(Error::mismatch(object, "a float format", scales.data.dtype.name));
        }
        Self::of_shape(shape, scales, strategies).ok_or_else(|| {
            let mut expected: Vec<String> = Vec::new();
            for strategy in strategies {
                expected.extend(shapes(shape, *strategy).into_iter().map(|s| format!("{s:?}")));
            }
            expected.dedup();
            let object = format!("shape of tensor `{}`", scales.name);
            let expected = format!("{} for `{weights}` of {shape:?}", expected.join(" or "));
            Error::mismatch(object, expected, format!("{:?}", scales.shape))
        })
    }

    /// The grid, if the shape fits one of the strategies.
    pub(super) fn of_shape(shape: &[u64], scales: &Entry, strategies: &[Strategy]) -> Option<Self> {
        let [.., rows, cols] = *shape else { return None };
        let strategy = strategies
            .iter()
            .find(|s| shapes(shape, **s).contains(&scales.shape))?;
        let (block_rows, block_cols) = match *strategy {
            Strategy::Tensor => (rows, cols),
            Strategy::Channel => (1, cols),
            Strategy::Group(size) => (1, size),
            Strategy::Block([rows, cols]) => (rows, cols),
        };
        // A tensor without elements has blocks of one.
        let (block_rows, block_cols) = (block_rows.max(1), block_cols.max(1));
        let (n_rows, n_cols) = (rows.div_ceil(block_rows), cols.div_ceil(block_cols));
        let shared = scales.n_elems() == n_rows * n_cols;
        Some(Self {
            data: scales.data,
            block_rows,
            block_cols,
            n_rows,
            n_cols,
            per_matrix: if shared { 0 } else { n_rows * n_cols },
        })
    }

    /// Rows of numbers that rows of the matrix need.
    pub(super) fn rows(&self, rows: &Range<u64>) -> Range<u64> {
        rows.start / self.block_rows..rows.end.div_ceil(self.block_rows)
    }

    /// Whole rows of numbers.
    pub(super) fn read(
        &self,
        files: &Files,
        matrix: u64,
        rows: &Range<u64>,
        raw: &mut Vec<u8>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        out.resize(((rows.end - rows.start) * self.n_cols) as usize, 0.0);
        let first = matrix * self.per_matrix + rows.start * self.n_cols;
        self.data.numbers(files, first, raw, out)
    }
}

/// The shapes that scales can have.
fn shapes(weights: &[u64], strategy: Strategy) -> Vec<Vec<u64>> {
    let (stack, &[rows, cols]) = weights.split_at(weights.len() - 2) else {
        return Vec::new();
    };
    let with = |dims: &[u64]| [stack, dims].concat();
    match strategy {
        Strategy::Tensor => {
            let mut all = vec![vec![], vec![1], vec![1, 1]];
            if !stack.is_empty() {
                all.extend([with(&[]), with(&[1]), with(&[1, 1])]);
            }
            all
        }
        Strategy::Channel => vec![with(&[rows, 1]), with(&[rows])],
        Strategy::Group(size) => vec![with(&[rows, cols.div_ceil(size)])],
        Strategy::Block(block) => vec![with(&[rows.div_ceil(block[0]), cols.div_ceil(block[1])])],
    }
}
