//! Places where a value or a block is not sound.

use gguf_blocks::Format;
use gguf_cli::Failure;

use crate::plan::Step;

/// A place in a tensor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Counted over all matrices of the tensor.
    pub(super) row: u64,
    pub(super) col: usize,
    pub(super) what: String,
}

impl Fault {
    /// A value that no encoder takes.
    pub(super) fn not_finite(row: u64, col: usize, value: f32) -> Self {
        let what = format!("expected a finite value, found {value}");
        Self { row, col, what }
    }

    /// The fault of a block that was sound before it was encoded: its values are beyond what the type holds.
    pub(super) fn too_large(row: u64, col: usize, format: &Format, values: &[f32]) -> Self {
        let block = values.iter().skip(col).take(format.geometry.block_elems);
        let (at, largest) = block
            .enumerate()
            .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
            .map_or((0, f32::NAN), |(i, v)| (i, *v));
        let what = format!(
            "expected a value that a block of `{}` can hold, found {largest:e}, which is too large; choose a type with a \
             wider range, such as `BF16`",
            format.name
        );
        Self {
            row,
            col: col + at,
            what,
        }
    }

    /// The first unsound block of rows that are copied.
    pub(super) fn in_rows(format: &Format, n_cols: usize, first: u64, rows: &[u8]) -> Option<Self> {
        let place = format.check_rows(n_cols, rows)?;
        let what = format!(
            "expected a sound block of `{}`, found one with a value or scale that is not finite; the source is damaged",
            format.name
        );
        Some(Self {
            row: first + place.row as u64,
            col: place.col,
            what,
        })
    }

    /// The error, with the names of things.
    pub(super) fn describe(&self, step: &Step) -> Failure {
        let shape = &step.source.shape;
        let n_rows = shape.dim(1).max(1);
        let (row, matrix) = (self.row % n_rows, self.row / n_rows);
        let matrix = if shape.dims().len() > 2 {
            format!("matrix {matrix}, ")
        } else {
            String::new()
        };
        Failure::Input(format!(
            "tensor `{}`, {matrix}row {row}, column {}: {}",
            step.source.name, self.col, self.what
        ))
    }
}
