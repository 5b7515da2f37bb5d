//! Places where a value or a block is not sound.

use gguf::Shape;
use gguf_blocks::{Format, Place};

/// A place in a tensor where a value or a block is not sound.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// Counted over all matrices of the tensor.
    row: u64,
    col: usize,
    what: String,
}

impl Fault {
    /// A value that no encoder takes; rows are counted over all matrices of the tensor.
    pub fn not_finite(row: u64, col: usize, value: f32) -> Self {
        let what = format!("expected a finite value, found {value}");
        Self { row, col, what }
    }

    /// The fault of a block that was sound before it was encoded: its values, the first of `values`, are beyond what the
    /// type holds. `col` is that of the first value.
    pub fn too_large(row: u64, col: usize, format: &Format, values: &[f32]) -> Self {
        let block = values.iter().take(format.geometry.block_elems);
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
    pub(crate) fn in_rows(format: &Format, n_cols: usize, first: u64, rows: &[u8]) -> Option<Self> {
        let place = format.check_rows(n_cols, rows)?;
        let row = first + place.row as u64;
        if let Some(value) = one_value(format, n_cols, rows, place) {
            return Some(Self::not_finite(row, place.col, value));
        }
        let what = format!(
            "expected a sound block of `{}`, found one with a value or scale that is not finite; the source is damaged",
            format.name
        );
        Some(Self {
            row,
            col: place.col,
            what,
        })
    }

    /// The place by its names, and what is wrong there.
    pub fn describe(&self, tensor: &str, shape: &Shape) -> String {
        let n_rows = shape.dim(1).max(1);
        let (row, matrix) = (self.row % n_rows, self.row / n_rows);
        let matrix = if shape.dims().len() > 2 {
            format!("matrix {matrix}, ")
        } else {
            String::new()
        };
        format!(
            "tensor `{tensor}`, {matrix}row {row}, column {}: {}",
            self.col, self.what
        )
    }
}

/// The first value that is no number or infinite.
pub fn first_not_finite(values: &[f32]) -> Option<usize> {
    const EXPONENT: u32 = 0x7F80_0000;
    const GROUP: usize = 256;
    // A group is looked at as a whole, so that the loop has no way out that would keep it from being vectorised.
    let is_bad = |group: &[f32]| {
        let all = group.iter().map(|v| v.to_bits() & EXPONENT == EXPONENT);
        all.fold(false, |any, bad| any | bad)
    };
    let group = values.chunks(GROUP).position(is_bad)?;
    let within = values[group * GROUP..].iter().position(|v| !v.is_finite())?;
    Some(group * GROUP + within)
}

/// The value of a block that has one only.
fn one_value(format: &Format, n_cols: usize, rows: &[u8], place: Place) -> Option<f32> {
    let size = format.geometry.block_bytes;
    let at = (place.row * n_cols + place.col) * size;
    let block = rows
        .get(at..at + size)
        .filter(|_| format.geometry.block_elems == 1)?;
    let mut value = [0.0];
    format.decode?(block, &mut value);
    Some(value[0])
}

#[cfg(test)]
mod tests {
    use super::first_not_finite;

    #[test]
    fn the_first_bad_value_is_found() {
        for n in [0, 1, 255, 256, 257, 700] {
            let values = vec![f32::MAX; n];
            assert_eq!(first_not_finite(&values), None);
            for at in [0, 1, 254, 255, 256, 699].into_iter().filter(|at| *at < n) {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = values.clone();
                    values[at] = bad;
                    values[n - 1] = bad;
                    assert_eq!(first_not_finite(&values), Some(at));
                }
            }
        }
    }
}
