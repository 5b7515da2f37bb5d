//! Rows of any type in f32, for types whose rows cannot be taken in parts.

use std::cell::RefCell;
use std::ops::Range;

use gguf_blocks::Unit;

use super::Weights;

thread_local! {
    static BUFFER: RefCell<RowBuffer> = RefCell::default();
}

/// Decodes one row, counted over all matrices of the stack.
pub(crate) fn decode_row(w: &Weights<'_>, row: usize, out: &mut [f32]) {
    BUFFER.with_borrow_mut(|buffer| buffer.decode(w, row..row + 1, out));
}

/// What decoding of rows needs beside its result.
#[derive(Debug, Default)]
pub(crate) struct RowBuffer {
    /// A tensor of just the rows wanted, where a type has its scale behind the last.
    bytes: Vec<u8>,
    /// Whole groups of interleaved rows.
    values: Vec<f32>,
}

impl RowBuffer {
    /// Decodes rows, counted over all matrices of the stack, into `out`.
    pub(crate) fn decode(&mut self, w: &Weights<'_>, rows: Range<usize>, out: &mut [f32]) {
        let geometry = w.format.geometry;
        let row_bytes = geometry
            .row_bytes(w.n_cols as u64)
            .expect("a row is a whole number of blocks") as usize;
        let done = match geometry.unit() {
            Unit::Block => {
                let bytes = &w.bytes[rows.start * row_bytes..rows.end * row_bytes];
                w.format.decode_rows(w.n_cols, bytes, out)
            }
            Unit::Tensor => {
                let trailer = w.n_rows * w.n_mats * row_bytes;
                self.bytes.clear();
                self.bytes
                    .extend_from_slice(&w.bytes[rows.start * row_bytes..rows.end * row_bytes]);
                self.bytes.extend_from_slice(&w.bytes[trailer..]);
                w.format.decode_rows(w.n_cols, &self.bytes, out)
            }
            Unit::Rows => {
                let k = geometry.interleave;
                let start = rows.start / k * k;
                let end = rows.end.next_multiple_of(k);
                self.values.resize((end - start) * w.n_cols, 0.0);
                let bytes = &w.bytes[start * row_bytes..end * row_bytes];
                let done = w.format.decode_rows(w.n_cols, bytes, &mut self.values);
                out.copy_from_slice(&self.values[(rows.start - start) * w.n_cols..][..out.len()]);
                done
            }
        };
        done.expect("the type has a decoder");
    }
}
