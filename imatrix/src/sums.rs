//! The sums over the inputs of each weight, exact.

use gguf_runtime::pool;
use std::collections::BTreeMap;

use gguf_blocks::Cpu;
use gguf_imatrix_format::Entry;
use gguf_runtime::kernels::sums::add_rows;

/// Columns that one task adds up: whole cache lines of a row, and enough to be worth a task.
const TASK_COLS: usize = 128;

/// The sums of one weight, matrix after matrix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sums {
    /// Columns that share a count: those of a row, or of the rows of all heads.
    pub(crate) n_cols: usize,
    pub(crate) squares: Vec<f64>,
    pub(crate) values: Vec<f64>,
    /// Rows that went into each matrix.
    pub(crate) counts: Vec<u64>,
}

/// A sum that is no longer a finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BadSum {
    pub(crate) matrix: usize,
    pub(crate) column: usize,
}

/// Adds up parts in parallel; the first sum that is bad.
fn first_of<I>(parts: I, add: impl Fn(I::Item) -> Option<BadSum> + Sync) -> Option<BadSum>
where
    I: ExactSizeIterator + Send,
{
    pool::map(parts, add).into_iter().flatten().min()
}

impl Sums {
    pub(crate) fn new(n_cols: usize, n_mat: usize) -> Self {
        let n = n_cols * n_mat;
        Self {
            n_cols,
            squares: vec![0.0; n],
            values: vec![0.0; n],
            counts: vec![0; n_mat],
        }
    }

    /// Every row meets the one matrix.
    pub(crate) fn add_dense(&mut self, cpu: Cpu, rows: &[f32]) -> Option<BadSum> {
        let n_cols = self.n_cols;
        let n = rows.len() / n_cols;
        self.counts[0] += n as u64;
        let parts = self
            .squares
            .chunks_mut(TASK_COLS)
            .zip(self.values.chunks_mut(TASK_COLS));
        first_of(parts.enumerate(), |(i, (squares, values))| {
            let first = i * TASK_COLS;
            add_rows(cpu, rows, (first, n_cols), 0..n, squares, values);
            let column = first + first_bad(squares)?;
            Some(BadSum { matrix: 0, column })
        })
    }

    /// Pairs `starts[e] .. starts[e + 1]` meet expert `e` with row `source[pair]`.
    pub(crate) fn add_experts(
        &mut self,
        cpu: Cpu,
        rows: &[f32],
        source: &[u32],
        starts: &[usize],
    ) -> Option<BadSum> {
        let n_cols = self.n_cols;
        let parts = self
            .squares
            .chunks_mut(n_cols)
            .zip(self.values.chunks_mut(n_cols));
        let parts = parts.zip(&mut self.counts).enumerate();
        first_of(parts, |(e, ((squares, values), count))| {
            let pairs = &source[starts[e]..starts[e + 1]];
            if pairs.is_empty() {
                return None;
            }
            *count += pairs.len() as u64;
            let pairs = pairs.iter().map(|&row| row as usize);
            add_rows(cpu, rows, (0, n_cols), pairs, squares, values);
            let column = first_bad(squares)?;
            Some(BadSum { matrix: e, column })
        })
    }

    fn entry(&self) -> Entry {
        let narrow = |sums: &[f64]| sums.iter().map(|&s| s as f32).collect();
        Entry {
            sums: narrow(&self.squares),
            means: narrow(&self.values),
            counts: self.counts.clone(),
        }
    }
}

/// The first sum of squares that is no finite number; where squares are finite, so are the values.
fn first_bad(squares: &[f64]) -> Option<usize> {
    squares.iter().position(|s| !s.is_finite())
}

/// The sums of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SumSet {
    /// By weight.
    pub(crate) sums: BTreeMap<String, Sums>,
    /// Weights that have the input, and so the sums, of another, which is in `sums`.
    pub(crate) same: BTreeMap<String, String>,
}

impl SumSet {
    /// The sums as they are stored, for each weight.
    pub(crate) fn entries(&self) -> BTreeMap<String, Entry> {
        let mut entries: BTreeMap<String, Entry> = self
            .sums
            .iter()
            .map(|(name, s)| (name.clone(), s.entry()))
            .collect();
        for (name, first) in &self.same {
            if let Some(entry) = entries.get(first).cloned() {
                entries.insert(name.clone(), entry);
            }
        }
        entries
    }

    /// The sums of a weight, its own or those that it shares.
    pub(crate) fn of(&self, name: &str) -> Option<&Sums> {
        self.sums.get(self.same.get(name).map_or(name, String::as_str))
    }
}
