//! Matrices as checkpoints store them, read as numbers.

use std::ops::Range;
use std::sync::Arc;

use gguf_blocks::Format;

use super::Dtype;
use super::numbers::{BATCH_BYTES, Data};
use crate::Result;
use crate::error::Error;
use crate::view::Files;

/// A matrix of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Rows.
    pub(crate) n_rows: u64,
    /// Elements of a row.
    pub(crate) n_cols: u64,
    /// Whether whole rows are taken as the blocks of [`Self::repack`].
    pub(super) repacked: bool,
    /// Where its numbers are, and in what form.
    pub(super) storage: Storage,
}

/// How numbers are stored.
#[derive(Clone, Debug)]
pub(super) enum Storage {
    /// Plain numbers, row behind row.
    Plain(Data),
    /// Plain numbers that stand for one over them.
    Inverse(Data),
    /// A matrix of a stack in a quantized form.
    Quantized {
        /// The stack.
        stack: Arc<dyn Quantized>,
        /// Which of its matrices.
        matrix: u64,
    },
    /// Values that are computed from the settings, row behind row.
    Memory(Arc<[f32]>),
}

/// Some rows and columns of a matrix of a stack.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) matrix: u64,
    pub(super) rows: Range<u64>,
    pub(super) cols: Range<u64>,
}

/// A stack of matrices in a quantized form. What is asked for lies inside the stack.
pub(super) trait Quantized: std::fmt::Debug + Send + Sync {
    /// The values of a part, row behind row.
    fn read(&self, files: &Files, part: Part, values: &mut [f32]) -> Result<()>;

    /// Rows that are best read together.
    fn rows_at_once(&self) -> u64 {
        1
    }

    /// The GGUF type that holds the same values, but for a factor of the whole matrix.
    fn repack(&self) -> Option<&'static Format> {
        None
    }

    /// Whole rows as blocks of [`Self::repack`].
    fn read_repacked(&self, _: &Files, _matrix: u64, _rows: Range<u64>, _out: &mut [u8]) -> Result<()> {
        unreachable!("asked for where there is a type")
    }

    /// Scales of a matrix that the blocks of [`Self::repack`] do not hold.
    fn misfits(&self, _: &Files, _matrix: u64) -> Result<u64> {
        Ok(0)
    }

    /// What the values of blocks of [`Self::repack`] are to be multiplied with.
    fn factor(&self, _matrix: u64) -> Option<Stored> {
        None
    }

    /// The scale of the inputs that goes with the factor.
    fn input_factor(&self, _matrix: u64) -> Option<Stored> {
        None
    }
}

impl Stored {
    /// A vector of values that are not in the checkpoint.
    pub(crate) fn computed(values: Vec<f32>) -> Self {
        Self {
            n_rows: 1,
            n_cols: values.len() as u64,
            repacked: false,
            storage: Storage::Memory(values.into()),
        }
    }

    /// Rows that are best read together: more than one where rows of the matrix are columns of what is stored.
    pub(crate) fn rows_at_once(&self) -> u64 {
        match &self.storage {
            Storage::Quantized { stack, .. } => stack.rows_at_once(),
            Storage::Plain(_) | Storage::Inverse(_) | Storage::Memory(_) => 1,
        }
    }

    /// Whether the numbers are stored one by one, not as codes with scales.
    pub(crate) fn is_plain(&self) -> bool {
        !matches!(self.storage, Storage::Quantized { .. })
    }

    /// The GGUF type whose blocks whole rows are taken as: the type of plain numbers, and of quantized forms that of
    /// [`Self::repack`] once [`Self::repacked`] was called.
    pub(crate) fn native(&self) -> Option<&'static Format> {
        match &self.storage {
            Storage::Plain(data) => data.dtype.format(),
            Storage::Quantized { stack, .. } if self.repacked => stack.repack(),
            Storage::Quantized { .. } | Storage::Inverse(_) | Storage::Memory(_) => None,
        }
    }

    /// The GGUF type that a quantized form can be put into without a change of any value: `MXFP4`; `NVFP4`, beside
    /// [`Self::factor`]; `Q4_0`, where there are no [`Self::misfits`].
    pub(crate) fn repack(&self) -> Option<&'static Format> {
        match &self.storage {
            Storage::Quantized { stack, .. } => stack.repack(),
            Storage::Plain(_) | Storage::Inverse(_) | Storage::Memory(_) => None,
        }
    }

    /// The same, with rows taken as blocks of [`Self::repack`] where there is such a type.
    pub(crate) fn repacked(mut self) -> Self {
        self.repacked = self.repack().is_some();
        self
    }

    /// How many of the scales the type of [`Self::repack`] does not hold. Reads all scales.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn misfits(&self, files: &Files) -> Result<u64> {
        match &self.storage {
            Storage::Quantized { stack, matrix } => stack.misfits(files, *matrix),
            Storage::Plain(_) | Storage::Inverse(_) | Storage::Memory(_) => Ok(0),
        }
    }

    /// The scale of the whole matrix, one number, which blocks of [`Self::repack`] leave out. Values of
    /// [`Self::read`] have it.
    pub(crate) fn factor(&self) -> Option<Self> {
        match &self.storage {
            Storage::Quantized { stack, matrix } => stack.factor(*matrix),
            Storage::Plain(_) | Storage::Inverse(_) | Storage::Memory(_) => None,
        }
    }

    /// The scale of the inputs, one number, which a model with weights as blocks of [`Self::repack`] may use.
    pub(crate) fn input_factor(&self) -> Option<Self> {
        match &self.storage {
            Storage::Quantized { stack, matrix } => stack.input_factor(*matrix),
            Storage::Plain(_) | Storage::Inverse(_) | Storage::Memory(_) => None,
        }
    }

    /// The only number of a matrix of one element.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn value(&self, files: &Files) -> Result<f32> {
        let mut value = [0.0];
        self.read(files, 0..1, 0..1, &mut value)?;
        Ok(value[0])
    }

    /// Whole rows from `first` on as blocks of [`Self::native`], as many as `out` has room for.
    ///
    /// # Errors
    /// A failed read, and a scale that the blocks do not hold.
    pub(crate) fn read_native(&self, files: &Files, first: u64, out: &mut [u8]) -> Result<()> {
        match &self.storage {
            Storage::Plain(data) | Storage::Inverse(data) => data.bytes(files, first * self.n_cols, out),
            Storage::Quantized { stack, matrix } => {
                let row_bytes = self.native().and_then(|f| f.geometry.row_bytes(self.n_cols));
                let n = out.len() as u64 / row_bytes.expect("asked for where there is a type").max(1);
                stack.read_repacked(files, *matrix, first..first + n, out)
            }
            Storage::Memory(_) => unreachable!("asked for where there is a type"),
        }
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
            Storage::Plain(data) => self.read_plain(*data, files, rows, cols, values),
            Storage::Memory(all) => {
                let width = (cols.end - cols.start).max(1) as usize;
                for (row, values) in rows.zip(values.chunks_exact_mut(width)) {
                    let first = (row * self.n_cols + cols.start) as usize;
                    values.copy_from_slice(&all[first..first + width]);
                }
                Ok(())
            }
            Storage::Inverse(data) => {
                self.read_plain(*data, files, rows, cols, &mut *values)?;
                for v in values {
                    *v = 1.0 / *v;
                }
                Ok(())
            }
            Storage::Quantized { stack, matrix } => {
                let matrix = *matrix;
                stack.read(files, Part { matrix, rows, cols }, values)
            }
        }
    }

    fn read_plain(
        &self,
        data: Data,
        files: &Files,
        rows: Range<u64>,
        cols: Range<u64>,
        values: &mut [f32],
    ) -> Result<()> {
        if data.dtype.format().is_none() {
            let what = format!(
                "dtype {} in `{}`",
                data.dtype.name,
                files[data.file].path().display()
            );
            let hint = format!("weights are read from {}", Dtype::supported());
            return Err(Error::unsupported(what, hint));
        }
        let width = cols.end - cols.start;
        let first = rows.start * self.n_cols + cols.start;
        // Whole rows are one stretch of the file, which is read in pieces.
        let (len, step) = if width == self.n_cols {
            let len = BATCH_BYTES / data.dtype.bytes();
            (len, len)
        } else {
            (width, self.n_cols)
        };
        let mut raw = Vec::new();
        for (i, values) in (0..).zip(values.chunks_mut(len.max(1) as usize)) {
            data.numbers(files, first + i * step, &mut raw, values)?;
        }
        Ok(())
    }
}
