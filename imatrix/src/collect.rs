//! Adds up what each weight's columns see.
//!
//! Sums are kept in f64 and each is added up in the order of the tokens, so they depend neither on threads
//! (which share out columns and experts, never tokens) nor on how the text is cut into batches.

use std::cell::Cell;
use std::collections::BTreeMap;

use gguf_imatrix_format::Entry;
use gguf_runtime::{Input, Observe};
use rayon::prelude::*;

/// Columns that one task adds up: whole cache lines of a row, and enough to be worth a task.
const TASK_COLS: usize = 128;

/// Weights outside layers that are collected on request: the output matrix by either name.
const OUTPUTS: &[&str] = &["output.weight", "token_embd.weight"];

/// The sums of one weight, matrix after matrix.
#[derive(Debug)]
struct Sums {
    n_cols: usize,
    squares: Vec<f64>,
    values: Vec<f64>,
    counts: Vec<u64>,
}

/// A sum that is no longer a finite number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fault {
    matrix: usize,
    column: usize,
}

impl Sums {
    fn new(n_cols: usize, n_mat: usize) -> Self {
        let n = n_cols * n_mat;
        Self {
            n_cols,
            squares: vec![0.0; n],
            values: vec![0.0; n],
            counts: vec![0; n_mat],
        }
    }

    /// Every row meets the one matrix.
    fn add_dense(&mut self, rows: &[f32]) -> Option<Fault> {
        let n_cols = self.n_cols;
        self.counts[0] += (rows.len() / n_cols) as u64;
        let parts = self
            .squares
            .par_chunks_mut(TASK_COLS)
            .zip(self.values.par_chunks_mut(TASK_COLS));
        let faults = parts.enumerate().filter_map(|(i, (squares, values))| {
            let first = i * TASK_COLS;
            let cols = first..first + squares.len();
            let column = add(
                rows.chunks_exact(n_cols).map(|r| &r[cols.clone()]),
                squares,
                values,
            )?;
            Some(Fault {
                matrix: 0,
                column: first + column,
            })
        });
        faults.min()
    }

    /// Pairs `starts[e] .. starts[e + 1]` meet expert `e` with row `source[pair]`.
    fn add_experts(&mut self, rows: &[f32], source: &[u32], starts: &[usize]) -> Option<Fault> {
        let n_cols = self.n_cols;
        let parts = self
            .squares
            .par_chunks_mut(n_cols)
            .zip(self.values.par_chunks_mut(n_cols));
        let faults = parts
            .zip(&mut self.counts)
            .enumerate()
            .filter_map(|(e, ((squares, values), count))| {
                let pairs = &source[starts[e]..starts[e + 1]];
                *count += pairs.len() as u64;
                let column = add(
                    pairs.iter().map(|&r| &rows[r as usize * n_cols..][..n_cols]),
                    squares,
                    values,
                )?;
                Some(Fault { matrix: e, column })
            });
        faults.min()
    }

    fn into_entry(self) -> Entry {
        let narrow = |sums: Vec<f64>| sums.into_iter().map(|s| s as f32).collect();
        Entry {
            sums: narrow(self.squares),
            means: narrow(self.values),
            counts: self.counts,
        }
    }
}

/// Adds rows column by column; the first column whose sum is not finite.
fn add<'a>(rows: impl Iterator<Item = &'a [f32]>, squares: &mut [f64], values: &mut [f64]) -> Option<usize> {
    for row in rows {
        for ((square, value), &x) in squares.iter_mut().zip(values.iter_mut()).zip(row) {
            let x = f64::from(x);
            *square += x * x;
            *value += x;
        }
    }
    squares.iter().position(|s| !s.is_finite())
}

/// Whether sums of a weight's inputs are kept.
pub(crate) fn wants(tensor: &str, with_output: bool) -> bool {
    tensor.starts_with("blk.") || (with_output && OUTPUTS.contains(&tensor))
}

/// Watches a forward pass.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    with_output: bool,
    sums: BTreeMap<String, Sums>,
    fault: Option<(String, Fault)>,
    /// Set with the first fault, for whoever can stop the evaluation.
    stop: &'a Cell<bool>,
}

impl<'a> Collector<'a> {
    /// Nothing seen yet. With `with_output` the output matrix is collected too.
    pub(crate) fn new(with_output: bool, stop: &'a Cell<bool>) -> Self {
        Self {
            with_output,
            sums: BTreeMap::new(),
            fault: None,
            stop,
        }
    }

    /// The first place where an input was no finite number.
    pub(crate) fn fault(&self) -> Option<String> {
        let (tensor, f) = self.fault.as_ref()?;
        let expert = match self.sums.get(tensor) {
            Some(s) if s.counts.len() > 1 => format!("expert {}, ", f.matrix),
            _ => String::new(),
        };
        Some(format!(
            "tensor `{tensor}`, {expert}column {}: its input is not a finite number",
            f.column
        ))
    }

    /// The sums, as they are stored.
    pub(crate) fn into_entries(self) -> BTreeMap<String, Entry> {
        self.sums
            .into_iter()
            .map(|(name, s)| (name, s.into_entry()))
            .collect()
    }
}

impl Observe for Collector<'_> {
    fn input(&mut self, tensor: &str, input: Input<'_>) {
        let (n_cols, n_mat) = match input {
            Input::Dense { n_cols, .. } if wants(tensor, self.with_output) => (n_cols, 1),
            Input::Dense { .. } => return,
            Input::Experts {
                n_cols, group_starts, ..
            } => (n_cols, group_starts.len().saturating_sub(1)),
        };
        if !self.sums.contains_key(tensor) {
            self.sums.insert(tensor.to_owned(), Sums::new(n_cols, n_mat));
        }
        let sums = self.sums.get_mut(tensor).expect("put in above");
        let fault = match input {
            Input::Dense { rows, .. } => sums.add_dense(rows),
            Input::Experts {
                rows,
                source,
                group_starts,
                ..
            } => sums.add_experts(rows, source, group_starts),
        };
        if let Some(f) = fault.filter(|_| self.fault.is_none()) {
            self.fault = Some((tensor.to_owned(), f));
            self.stop.set(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(rows: &[f32], n_cols: usize) -> Input<'_> {
        Input::Dense { rows, n_cols }
    }

    #[test]
    fn dense_sums_do_not_depend_on_the_batch() {
        let n_cols = 300;
        let rows: Vec<f32> = (0..40 * n_cols)
            .map(|i| ((i * 7919 % 1009) as f32 - 500.0) * 1.7e-3)
            .collect();
        let stop = Cell::new(false);
        let collect = |step: usize| {
            let mut c = Collector::new(false, &stop);
            for part in rows.chunks(step * n_cols) {
                c.input("blk.0.attn_q.weight", dense(part, n_cols));
            }
            c.into_entries().remove("blk.0.attn_q.weight").unwrap()
        };
        let whole = collect(40);
        assert_eq!(whole.counts, [40]);
        assert_eq!(whole, collect(1));
        assert_eq!(whole, collect(7));
        let column = |c: usize| rows.iter().skip(c).step_by(n_cols).map(|&x| f64::from(x));
        assert_eq!(whole.sums[299], column(299).fold(0.0, |s, x| s + x * x) as f32);
        assert_eq!(whole.means[131], column(131).fold(0.0, |s, x| s + x) as f32);
    }

    #[test]
    fn experts_have_their_own_sums_and_counts() {
        let stop = Cell::new(false);
        let mut c = Collector::new(false, &stop);
        let rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let input = Input::Experts {
            rows: &rows,
            n_cols: 2,
            source: &[0, 2, 1],
            group_starts: &[0, 2, 2, 3],
        };
        c.input("blk.0.ffn_up_exps.weight", input);
        let e = c.into_entries().remove("blk.0.ffn_up_exps.weight").unwrap();
        assert_eq!(e.counts, [2, 0, 1]);
        assert_eq!(e.sums, [26.0, 40.0, 0.0, 0.0, 9.0, 16.0]);
        assert_eq!(e.means, [6.0, 8.0, 0.0, 0.0, 3.0, 4.0]);
    }

    #[test]
    fn the_output_is_collected_on_request() {
        let stop = Cell::new(false);
        for (with_output, n) in [(false, 1), (true, 3)] {
            let mut c = Collector::new(with_output, &stop);
            for name in [
                "output.weight",
                "token_embd.weight",
                "blk.0.attn_k.weight",
                "other.weight",
            ] {
                c.input(name, dense(&[1.0; 8], 4));
            }
            assert_eq!(c.into_entries().len(), n);
        }
    }

    #[test]
    fn the_first_bad_input_is_named_and_stops() {
        let stop = Cell::new(false);
        let mut c = Collector::new(false, &stop);
        c.input("blk.0.attn_k.weight", dense(&[1.0; 8], 4));
        assert!(c.fault().is_none() && !stop.get());
        let rows = [1.0, f32::NAN];
        let input = Input::Experts {
            rows: &rows,
            n_cols: 2,
            source: &[0],
            group_starts: &[0, 0, 1],
        };
        c.input("blk.1.ffn_up_exps.weight", input);
        c.input("blk.2.attn_k.weight", dense(&[f32::INFINITY; 4], 4));
        assert!(stop.get());
        let expected =
            "tensor `blk.1.ffn_up_exps.weight`, expert 1, column 1: its input is not a finite number";
        assert_eq!(c.fault().as_deref(), Some(expected));
    }
}
