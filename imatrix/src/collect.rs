//! Adds up what each weight's columns see.
//!
//! Sums are kept in f64 and each is added up in the order of the tokens, so they depend neither on threads
//! (which share out columns and experts, never tokens) nor on how the text is cut into batches.

use std::cell::Cell;

use gguf_blocks::Cpu;
use gguf_runtime::{Input, Model, Observe, Observed};

use crate::sums::{BadSum, SumSet, Sums};

/// Weights outside layers that are collected on request: the output matrix by either name.
const OUTPUTS: &[&str] = &["output.weight", "token_embd.weight"];

/// Whether sums of a weight's inputs are kept.
pub(crate) fn wants(tensor: &str, with_output: bool) -> bool {
    tensor.starts_with("blk.") || (with_output && OUTPUTS.contains(&tensor))
}

/// The weights of which sums are kept, each with its sums' shape.
pub(crate) fn collected(model: &Model, with_output: bool) -> Vec<Observed<'_>> {
    let mut all = model.observed();
    all.retain(|w| wants(w.name, with_output));
    all
}

/// An input that is no finite number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// The weight that would meet it.
    pub(crate) tensor: String,
    /// The matrix of a stack.
    pub(crate) expert: Option<usize>,
    pub(crate) column: usize,
    pub(crate) value: f32,
    /// Which of all tokens that were evaluated, counted from 0.
    pub(crate) token: u64,
}

/// What is to be collected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// The output matrix too.
    pub(crate) output: bool,
    /// The share of tokens that all experts see; 0 for those that are routed alone.
    pub(crate) share: f64,
}

/// Watches a forward pass.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    wish: Wish,
    cpu: Cpu,
    set: SumSet,
    /// Tokens in front of the micro-batch.
    n_before: u64,
    fault: Option<Fault>,
    /// Set with the first fault, for whoever can stop the evaluation.
    stop: &'a Cell<bool>,
}

impl<'a> Collector<'a> {
    /// Goes on from the sums of what was seen before.
    pub(crate) fn new(wish: Wish, before: SumSet, stop: &'a Cell<bool>) -> Self {
        Self {
            wish,
            cpu: Cpu::best(),
            set: before,
            n_before: 0,
            fault: None,
            stop,
        }
    }

    /// The first place where an input was no finite number.
    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// What was added up so far.
    pub(crate) fn sums(&self) -> &SumSet {
        &self.set
    }

    fn note(&mut self, tensor: &str, input: Input<'_>, bad: BadSum) {
        let BadSum { matrix, column } = bad;
        let (rows, n_cols) = match input {
            Input::Heads { rows, n_cols, n_head } => (rows, n_cols * n_head),
            _ => input.rows(),
        };
        let value = |row: usize| rows[row * n_cols + column];
        let (row, token, expert) = match input {
            Input::Experts {
                source,
                group_starts,
                tokens,
                ..
            } => {
                let mut pairs = group_starts[matrix]..group_starts[matrix + 1];
                let pair = pairs.find(|&p| !value(source[p] as usize).is_finite());
                let pair = pair.unwrap_or(group_starts[matrix]);
                (source[pair] as usize, tokens[pair] as usize, Some(matrix))
            }
            Input::Dense { .. } | Input::Heads { .. } => {
                let row = (0..rows.len() / n_cols).find(|&row| !value(row).is_finite());
                (row.unwrap_or(0), row.unwrap_or(0), None)
            }
        };
        self.fault = Some(Fault {
            tensor: tensor.to_owned(),
            expert,
            column,
            value: value(row),
            token: self.n_before + token as u64,
        });
        self.stop.set(true);
    }
}

impl Observe for Collector<'_> {
    fn input(&mut self, tensor: &str, input: Input<'_>) {
        let (n_cols, n_mat) = match input {
            Input::Dense { n_cols, .. } => (n_cols, 1),
            // One count for all heads, as every token meets each.
            Input::Heads { n_cols, n_head, .. } => (n_cols * n_head, 1),
            Input::Experts {
                n_cols, group_starts, ..
            } => (n_cols, group_starts.len().saturating_sub(1)),
        };
        if !wants(tensor, self.wish.output) {
            return;
        }
        if !self.set.sums.contains_key(tensor) {
            self.set.sums.insert(tensor.to_owned(), Sums::new(n_cols, n_mat));
        }
        let sums = self.set.sums.get_mut(tensor).expect("put in above");
        let bad = match input {
            Input::Dense { rows, .. } | Input::Heads { rows, .. } => {
                self.n_before = sums.counts[0];
                sums.add_dense(self.cpu, rows)
            }
            Input::Experts {
                rows,
                source,
                group_starts,
                ..
            } => sums.add_experts(self.cpu, rows, source, group_starts),
        };
        if let Some(bad) = bad.filter(|_| self.fault.is_none()) {
            self.note(tensor, input, bad);
        }
    }

    fn same_input(&mut self, tensor: &str, first: &str, _: Input<'_>) {
        if wants(tensor, self.wish.output) && !self.set.same.contains_key(tensor) {
            self.set.same.insert(tensor.to_owned(), first.to_owned());
        }
    }

    fn share_for_all_experts(&self) -> f64 {
        self.wish.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish = Wish {
        output: false,
        share: 0.0,
    };

    fn collector(stop: &Cell<bool>) -> Collector<'_> {
        Collector::new(WISH, SumSet::default(), stop)
    }

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
            let mut c = collector(&stop);
            for part in rows.chunks(step * n_cols) {
                c.input("blk.0.attn_q.weight", dense(part, n_cols));
            }
            c.sums().sums["blk.0.attn_q.weight"].clone()
        };
        let whole = collect(40);
        assert_eq!(whole.counts, [40]);
        assert_eq!(whole, collect(1));
        assert_eq!(whole, collect(7));
        let column = |c: usize| rows.iter().skip(c).step_by(n_cols).map(|&x| f64::from(x));
        assert_eq!(whole.squares[299], column(299).fold(0.0, |s, x| s + x * x));
        assert_eq!(whole.values[131], column(131).fold(0.0, |s, x| s + x));
    }

    #[test]
    fn experts_have_their_own_sums_and_counts() {
        let stop = Cell::new(false);
        let mut c = collector(&stop);
        let input = Input::Experts {
            rows: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            n_cols: 2,
            source: &[0, 2, 1],
            group_starts: &[0, 2, 2, 3],
            tokens: &[0, 2, 1],
        };
        c.input("blk.0.ffn_gate_exps.weight", input);
        c.same_input("blk.0.ffn_up_exps.weight", "blk.0.ffn_gate_exps.weight", input);
        let entries = c.sums().entries();
        let e = &entries["blk.0.ffn_up_exps.weight"];
        assert_eq!(e.counts, [2, 0, 1]);
        assert_eq!(e.sums, [26.0, 40.0, 0.0, 0.0, 9.0, 16.0]);
        assert_eq!(e.means, [6.0, 8.0, 0.0, 0.0, 3.0, 4.0]);
        assert_eq!(e, &entries["blk.0.ffn_gate_exps.weight"]);
    }

    #[test]
    fn heads_share_one_count() {
        let stop = Cell::new(false);
        let mut c = collector(&stop);
        let input = Input::Heads {
            rows: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
            n_cols: 2,
            n_head: 2,
        };
        assert_eq!(input.n_products(), 4);
        c.input("blk.0.attn_k_b.weight", input);
        let e = &c.sums().entries()["blk.0.attn_k_b.weight"];
        assert_eq!(e.counts, [2]);
        assert_eq!(e.means, [6.0, 8.0, 10.0, 12.0]);
    }

    #[test]
    fn the_output_is_collected_on_request() {
        let stop = Cell::new(false);
        for (output, n) in [(false, 1), (true, 3)] {
            let mut c = Collector::new(Wish { output, ..WISH }, SumSet::default(), &stop);
            for name in [
                "output.weight",
                "token_embd.weight",
                "blk.0.attn_k.weight",
                "other.weight",
            ] {
                c.input(name, dense(&[1.0; 8], 4));
            }
            assert_eq!(c.sums().entries().len(), n);
        }
    }

    #[test]
    fn the_first_bad_input_is_named_and_stops() {
        let stop = Cell::new(false);
        let mut c = collector(&stop);
        for _ in 0..2 {
            c.input("blk.0.attn_k.weight", dense(&[1.0; 8], 4));
        }
        assert!(c.fault().is_none() && !stop.get());
        let input = Input::Experts {
            rows: &[1.0, 3.0, 1.0, f32::NEG_INFINITY],
            n_cols: 2,
            source: &[0, 1],
            group_starts: &[0, 0, 2],
            tokens: &[0, 1],
        };
        c.input("blk.1.ffn_up_exps.weight", input);
        c.input("blk.2.attn_k.weight", dense(&[f32::NAN; 4], 4));
        assert!(stop.get());
        let expected = Fault {
            tensor: "blk.1.ffn_up_exps.weight".into(),
            expert: Some(1),
            column: 1,
            value: f32::NEG_INFINITY,
            // The third and fourth row of the layer in front are of this micro-batch.
            token: 3,
        };
        assert_eq!(c.fault(), Some(&expected));
    }
}
