//! Matrices as checkpoints store them, read as numbers.

use std::ops::Range;
use std::sync::Arc;

use gguf_blocks::Format;

use super::Dtype;
use crate::Result;
use crate::view::Files;

/// A matrix of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Rows.
    pub(crate) n_rows: u64,
    /// Elements of a row.
    pub(crate) n_cols: u64,
    /// Where its numbers are, and in what form.
    pub(crate) storage: Storage,
}

/// How numbers are stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub(crate) enum Storage {
    /// Plain numbers, row behind row.
    Plain {
        /// Index into [`super::Weights::files`].
        file: usize,
        /// Number format.
        dtype: Dtype,
        /// First byte in the file.
        at: u64,
    },
    /// Values that are computed from the settings, row behind row.
    Memory(Arc<[f32]>),
}

impl Stored {
    /// The GGUF type whose blocks whole rows are, or can be put together as without a change of any value.
    pub(crate) fn native(&self) -> Option<&'static Format> {
        match self.storage {
            Storage::Plain { dtype, .. } => dtype.format(),
            Storage::Memory(_) => None,
        }
    }

    /// Whole rows from `first` on as blocks of [`Self::native`], as many as `out` has room for.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn read_native(&self, files: &Files, first: u64, out: &mut [u8]) -> Result<()> {
        match self.storage {
            Storage::Plain { file, dtype, at } => {
                files[file].read_at(at + first * self.n_cols * dtype.bytes(), out)?;
            }
            Storage::Memory(_) => {}
        }
        Ok(())
    }

    /// The values of columns `cols` of rows `rows`, row behind row, into `values`, which has exactly that many.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn read(
        &self,
        files: &Files,
        rows: Range<u64>,
        cols: Range<u64>,
        values: &mut [f32],
    ) -> Result<()> {
        match &self.storage {
            Storage::Memory(all) => {
                let width = (cols.end - cols.start).max(1) as usize;
                for (row, values) in rows.zip(values.chunks_exact_mut(width)) {
                    let first = (row * self.n_cols + cols.start) as usize;
                    values.copy_from_slice(&all[first..first + width]);
                }
            }
            &Storage::Plain { file, dtype, at } => {
                let decode = dtype
                    .format()
                    .and_then(|f| f.decode)
                    .expect("a format of weights");
                let width = cols.end - cols.start;
                let whole = width == self.n_cols;
                // Whole rows are one stretch of the file.
                let (n_reads, len) = if whole {
                    (1, (rows.end - rows.start) * width)
                } else {
                    (rows.end - rows.start, width)
                };
                let mut raw = vec![0; (len * dtype.bytes()) as usize];
                for (i, values) in (0..n_reads).zip(values.chunks_exact_mut(len.max(1) as usize)) {
                    let first = (rows.start + i) * self.n_cols + cols.start;
                    files[file].read_at(at + first * dtype.bytes(), &mut raw)?;
                    decode(&raw, values);
                }
            }
        }
        Ok(())
    }
}
