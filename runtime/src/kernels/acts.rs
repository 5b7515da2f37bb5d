//! Activation rows in front of a product.

use gguf_blocks::Cpu;
use gguf_blocks::activation::{GROUP, GroupScale, quantize};
use gguf_blocks::kernel::{Columns, MAX_COLUMNS, RoundActivations};

use crate::observe::Reported;
use crate::pool;

/// Values that one task quantizes, whole groups, and up to which sharing out is not worth it.
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
    /// Whether `q` and `scales` were made of `x`.
    quantized: bool,
    packed: Packed,
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
        pool::resize(&mut self.x, n * n_cols, 0.0);
        self.forget();
    }

    /// The f32 rows, row after row, to be filled after `reset`.
    pub fn rows_mut(&mut self) -> &mut [f32] {
        self.forget();
        &mut self.x
    }

    /// The forms made of the rows are no longer theirs.
    fn forget(&mut self) {
        self.quantized = false;
        self.packed.valid = false;
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

    /// Groups `first .. first + n` of the columns of the panel that starts at pair `pair` and has `width` of them, of
    /// which the first is row `row`. [`Self::quantize`] must have been called for these pairs.
    #[inline]
    pub(super) fn panel(
        &self,
        (pair, width): (usize, usize),
        row: u32,
        first: usize,
        n: usize,
    ) -> Columns<'_> {
        let n_groups = self.n_cols / GROUP;
        // A single column lies in its row as it would in a panel.
        let (q, scales, start) = if width == 1 {
            (&self.q, &self.scales, row as usize * n_groups)
        } else {
            (&self.packed.q, &self.packed.scales, pair * n_groups)
        };
        let groups = start + first * width..start + (first + n) * width;
        Columns {
            q: &q[groups.start * GROUP..groups.end * GROUP],
            scales: &scales[groups],
        }
    }

    /// The numbers of the rows and maybe more, to be given back with [`Self::put_rows`].
    pub(super) fn take_rows(&mut self) -> Vec<u32> {
        let mut rows = std::mem::take(&mut self.rows);
        rows.extend(rows.len() as u32..self.n as u32);
        rows
    }

    /// Gives back what [`Self::take_rows`] gave.
    pub(super) fn put_rows(&mut self, rows: Vec<u32>) {
        self.rows = rows;
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
        pool::resize(&mut self.rounded, self.x.len(), 0.0);
        let parts = self.x.chunks(TASK).zip(self.rounded.chunks_mut(TASK));
        pool::for_each(parts, |(x, rounded)| round(x, rounded));
        self.rounding = Some(round);
    }

    /// Quantizes all rows unless that has been done, and lays out the columns of the pairs for kernels.
    pub(super) fn quantize(&mut self, cpu: Cpu, source: &[u32], group_starts: &[usize]) {
        if !self.quantized {
            pool::resize(&mut self.q, self.x.len(), 0);
            pool::resize(&mut self.scales, self.x.len() / GROUP, GroupScale::default());
            if self.x.len() <= TASK {
                quantize(cpu, &self.x, &mut self.q, &mut self.scales);
            } else {
                let parts = self.x.chunks(TASK).zip(self.q.chunks_mut(TASK));
                let parts = parts.zip(self.scales.chunks_mut(TASK / GROUP));
                pool::for_each(parts, |((x, q), scales)| quantize(cpu, x, q, scales));
            }
            self.quantized = true;
        }
        let rows = Rows {
            q: &self.q,
            scales: &self.scales,
            n_cols: self.n_cols,
        };
        self.packed.fill(&rows, source, group_starts);
    }
}

/// The panels of `n` columns: where each starts, and how many columns it has, a number that kernels take.
pub(super) fn panels(n: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let width = match n - first {
            0 => return None,
            1 => 1,
            2..MAX_COLUMNS => 2,
            _ => MAX_COLUMNS,
        };
        first += width;
        Some((first - width, width))
    })
}

/// Quantized rows.
struct Rows<'a> {
    q: &'a [i8],
    scales: &'a [GroupScale],
    n_cols: usize,
}

impl Rows<'_> {
    /// Lays out the columns of a panel, which are rows here.
    fn interleave(&self, rows: &[u32], q: &mut [i8], scales: &mut [GroupScale]) {
        let (width, n_groups) = (rows.len(), self.n_cols / GROUP);
        let q = q.as_chunks_mut::<4>().0;
        for (c, &row) in rows.iter().enumerate() {
            let row = row as usize;
            let from = self.q[row * self.n_cols..][..self.n_cols].as_chunks::<4>().0;
            for (four, from) in q[c..].iter_mut().step_by(width).zip(from) {
                *four = *from;
            }
            let from = &self.scales[row * n_groups..][..n_groups];
            for (scale, from) in scales[c..].iter_mut().step_by(width).zip(from) {
                *scale = *from;
            }
        }
    }
}

/// Quantized columns of the pairs of a product, panel after panel.
#[derive(Debug, Default)]
struct Packed {
    q: Vec<i8>,
    scales: Vec<GroupScale>,
    /// Whether these are the columns of the following pairs.
    valid: bool,
    source: Vec<u32>,
    group_starts: Vec<usize>,
}

impl Packed {
    fn fill(&mut self, rows: &Rows<'_>, source: &[u32], group_starts: &[usize]) {
        if self.valid && self.source == source && self.group_starts == group_starts {
            return;
        }
        // Groups of one pair are used as they are.
        if group_starts.windows(2).all(|g| g[1] - g[0] < 2) {
            return;
        }
        let n_groups = rows.n_cols / GROUP;
        pool::resize(&mut self.q, source.len() * rows.n_cols, 0);
        pool::resize(&mut self.scales, source.len() * n_groups, GroupScale::default());
        let (mut q, mut scales) = (&mut self.q[..], &mut self.scales[..]);
        let groups = group_starts
            .windows(2)
            .flat_map(|g| panels(g[1] - g[0]).map(move |(first, width)| (g[0] + first, width)));
        let tasks = groups.map(|(first, width)| {
            let source = &source[first..first + width];
            let q = q.split_off_mut(..width * rows.n_cols).unwrap_or_default();
            let scales = scales.split_off_mut(..width * n_groups).unwrap_or_default();
            (source, q, scales)
        });
        // Single columns are used as they are.
        let tasks = tasks.filter(|(source, ..)| source.len() > 1);
        let interleave = |(source, q, scales): (&[u32], &mut [i8], &mut [GroupScale])| {
            rows.interleave(source, q, scales);
        };
        if source.len() * rows.n_cols <= TASK {
            tasks.for_each(interleave);
        } else {
            pool::rows(tasks, interleave);
        }
        self.source.clear();
        self.source.extend_from_slice(source);
        self.group_starts.clear();
        self.group_starts.extend_from_slice(group_starts);
        self.valid = true;
    }
}
