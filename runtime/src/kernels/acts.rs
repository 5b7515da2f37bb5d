//! Activation rows in front of a product.

use gguf_blocks::Cpu;
use gguf_blocks::activation::{GROUP, GroupScale, Q8Row, quantize};
use gguf_blocks::kernel::RoundActivations;
use rayon::prelude::*;

use crate::observe::Reported;

/// Values that one task quantizes: a whole number of spans.
const TASK: usize = 1 << 15;

/// Activation rows in front of a product: f32, and quantized when a type with integer kernels needs it.
/// Reused from call to call without allocation.
#[derive(Debug, Default)]
pub struct Acts {
    n: usize,
    n_cols: usize,
    x: Vec<f32>,
    q: Vec<i8>,
    scales: Vec<GroupScale>,
    /// The span with which `q` and `scales` were made of `x`, if they were.
    quantized: Option<usize>,
    rounded: Vec<f32>,
    /// The rounding that made `rounded` of `x`.
    rounding: Option<RoundActivations>,
    /// Whether [`Self::row`] gives rounded rows.
    use_rounded: bool,
    /// `0..n`, grown as needed.
    rows: Vec<u32>,
    /// Weights that an observer saw these rows with.
    reported: Reported,
}

impl Acts {
    /// Makes room for `n` rows of `n_cols` elements and drops what was there.
    pub fn reset(&mut self, n: usize, n_cols: usize) {
        (self.n, self.n_cols) = (n, n_cols);
        self.x.resize(n * n_cols, 0.0);
        self.forget();
    }

    /// The f32 rows, row after row, to be filled after `reset`.
    pub fn rows_mut(&mut self) -> &mut [f32] {
        self.forget();
        &mut self.x
    }

    /// The forms made of the rows are no longer theirs.
    fn forget(&mut self) {
        self.quantized = None;
        self.rounding = None;
        self.use_rounded = false;
        self.reported.clear();
    }

    /// The f32 rows, and which weights an observer saw them with.
    pub(crate) fn rows_to_report(&mut self) -> (&[f32], &mut Reported) {
        (&self.x, &mut self.reported)
    }

    /// The f32 rows.
    pub fn rows(&self) -> &[f32] {
        &self.x
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Elements of a row.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// One row for float kernels, in the form that the last [`Self::round`] asked for.
    #[inline]
    pub(super) fn row(&self, i: usize) -> &[f32] {
        let x = if self.use_rounded { &self.rounded } else { &self.x };
        &x[i * self.n_cols..][..self.n_cols]
    }

    /// One quantized row; [`Self::quantize`] must have been called.
    #[inline]
    pub(super) fn q8_row(&self, i: usize) -> Q8Row<'_> {
        let n_groups = self.n_cols / GROUP;
        Q8Row {
            q: &self.q[i * self.n_cols..][..self.n_cols],
            scales: &self.scales[i * n_groups..][..n_groups],
        }
    }

    /// Makes [`Self::identity`] reach `n`.
    pub(super) fn number_rows(&mut self) {
        self.rows.extend(self.rows.len() as u32..self.n as u32);
    }

    /// The numbers of the rows; [`Self::number_rows`] must have been called.
    pub(super) fn identity(&self) -> &[u32] {
        &self.rows[..self.n]
    }

    /// Makes [`Self::row`] give rows rounded by `round`, or the exact ones.
    pub(super) fn round(&mut self, round: Option<RoundActivations>) {
        self.use_rounded = round.is_some();
        let Some(round) = round else { return };
        if self
            .rounding
            .is_some_and(|made| std::ptr::fn_addr_eq(made, round))
        {
            return;
        }
        self.rounded.resize(self.x.len(), 0.0);
        self.x
            .par_chunks(TASK)
            .zip(self.rounded.par_chunks_mut(TASK))
            .for_each(|(x, rounded)| round(x, rounded));
        self.rounding = Some(round);
    }

    /// Quantizes all rows in spans unless that has been done. A row must be a whole number of spans.
    pub(super) fn quantize(&mut self, cpu: Cpu, span: usize) {
        if self.quantized == Some(span) {
            return;
        }
        self.q.resize(self.x.len(), 0);
        self.scales.resize(self.x.len() / GROUP, GroupScale::default());
        if self.x.len() <= TASK {
            quantize(cpu, span, &self.x, &mut self.q, &mut self.scales);
        } else {
            self.x
                .par_chunks(TASK)
                .zip(self.q.par_chunks_mut(TASK))
                .zip(self.scales.par_chunks_mut(TASK / GROUP))
                .for_each(|((x, q), scales)| quantize(cpu, span, x, q, scales));
        }
        self.quantized = Some(span);
    }
}
