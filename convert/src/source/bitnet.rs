//! `BitNet`'s ternary weights: the codes of four rows share a byte, and one number divides all values.

use super::numbers::Data;
use super::stored::{Part, Quantized};
use crate::Result;
use crate::view::Files;

/// A ternary matrix.
#[derive(Debug)]
pub(super) struct Ternary {
    /// Rows; those of quarter `q` are in bits `2 q` of the stored rows.
    pub(super) n_rows: u64,
    pub(super) n_cols: u64,
    pub(super) codes: Data,
    /// What the values are divided by.
    pub(super) scale: Data,
}

impl Quantized for Ternary {
    fn read(&self, files: &Files, part: Part, values: &mut [f32]) -> Result<()> {
        let width = (part.cols.end - part.cols.start) as usize;
        if width == 0 {
            return Ok(());
        }
        let scale = self.scale.number(files, 0)?;
        let quarter = self.n_rows / 4;
        let mut raw = vec![0; width];
        for (row, out) in part.rows.zip(values.chunks_exact_mut(width)) {
            let (shift, stored) = (row / quarter * 2, row % quarter);
            self.codes
                .bytes(files, stored * self.n_cols + part.cols.start, &mut raw)?;
            let of = [-1.0, 0.0, 1.0, 2.0].map(|code: f32| code / scale);
            for (v, byte) in out.iter_mut().zip(&raw) {
                *v = of[usize::from(byte >> shift & 3)];
            }
        }
        Ok(())
    }
}
