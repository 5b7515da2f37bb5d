//! A prior for experts that saw few tokens: what all experts of the tensor saw together.
//!
//! Mean squares of a few tokens are mostly chance. With a prior of `N` an expert counts as if it had seen `N` tokens
//! more, each of them the mean of all tokens of the tensor: an expert without tokens has that mean, one with many keeps
//! what is its own.

use crate::{Entry, Imatrix, is_experts};

/// The mean square of a column of an expert that saw `count` tokens with squares `sum`, where `mean` is that of the
/// column over the tokens of all experts.
pub fn shrink(sum: f32, count: u64, mean: f64, prior: u32) -> f32 {
    let prior = f64::from(prior);
    ((f64::from(sum) + prior * mean) / (count as f64 + prior)) as f32
}

/// Mean squares of columns over the tokens of a whole stack, while its matrices come one after the other.
pub(crate) struct Means(Vec<f64>);

impl Means {
    pub(crate) fn new(n_cols: usize) -> Self {
        Self(vec![0.0; n_cols])
    }

    /// Adds the sums of one matrix.
    pub(crate) fn add(&mut self, sums: &[f32]) {
        for (all, v) in self.0.iter_mut().zip(sums) {
            *all += f64::from(*v);
        }
    }

    /// The means, if any matrix saw a token.
    pub(crate) fn of(mut self, counts: &[u64]) -> Option<Vec<f64>> {
        let total: f64 = counts.iter().map(|c| *c as f64).sum();
        self.0.iter_mut().for_each(|s| *s /= total);
        (total > 0.0).then_some(self.0)
    }
}

/// Whether a prior means something for a weight: experts with counts of their own, some of which saw tokens.
pub(crate) fn takes_prior(name: &str, counts: &[u64]) -> bool {
    is_experts(name) && counts.len() > 1 && counts.iter().any(|c| *c > 0)
}

impl Entry {
    /// Adds `prior` tokens of the stack's mean to each matrix.
    fn bake(&mut self, prior: u32) {
        let n_cols = self.sums.len() / self.counts.len();
        for values in [&mut self.sums, &mut self.means] {
            let mut means = Means::new(n_cols);
            values.chunks_exact(n_cols).for_each(|row| means.add(row));
            let means = means.of(&self.counts).expect("some matrix saw a token");
            for row in values.chunks_exact_mut(n_cols) {
                for (v, mean) in row.iter_mut().zip(&means) {
                    *v = (f64::from(*v) + f64::from(prior) * mean) as f32;
                }
            }
        }
        for count in &mut self.counts {
            *count = count.saturating_add(prior.into());
        }
    }
}

impl Imatrix {
    /// Gives every stack of experts the prior, for programs that know none: sums and counts then hold `prior` tokens of
    /// the stack's mean in each expert. Returns how many weights it concerned.
    pub fn bake_prior(&mut self, prior: u32) -> usize {
        let mut n = 0;
        for (_, entry) in self
            .entries
            .iter_mut()
            .filter(|(name, e)| takes_prior(name, &e.counts))
        {
            entry.bake(prior);
            n += 1;
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tokens_are_pulled_and_many_are_not() {
        // One token of 5 times the usual square, among experts whose mean is 1.
        assert!((shrink(5.0, 1, 1.0, 32) - 37.0 / 33.0).abs() < 1e-6);
        assert_eq!(shrink(0.0, 0, 1.5, 32), 1.5);
        let many = shrink(2e5, 100_000, 1.0, 32);
        assert!((many / 2.0 - 1.0).abs() < 1e-3, "{many}");
        assert_eq!(shrink(6.0, 3, 9.0, 0), 2.0);
    }

    #[test]
    fn a_baked_prior_gives_the_same_mean_squares() {
        let entry = Entry {
            sums: vec![6.0, 3.0, 0.0, 0.0, 30.0, 9.0],
            means: vec![],
            counts: vec![3, 0, 9],
        };
        let dense = Entry {
            sums: vec![1.0; 4],
            means: vec![],
            counts: vec![2],
        };
        let mut m = Imatrix {
            entries: [
                ("blk.0.ffn_up_exps.weight".to_owned(), entry),
                ("d".to_owned(), dense.clone()),
            ]
            .into(),
            ..Imatrix::default()
        };
        assert_eq!(m.bake_prior(4), 1);
        assert_eq!(m.entries["d"], dense);
        let expected: Vec<f32> = [
            (6.0, 3, 3.0),
            (3.0, 3, 1.0),
            (0.0, 0, 3.0),
            (0.0, 0, 1.0),
            (30.0, 9, 3.0),
            (9.0, 9, 1.0),
        ]
        .map(|(sum, n, mean)| shrink(sum, n, mean, 4))
        .into();
        assert_eq!(m.importance("blk.0.ffn_up_exps.weight"), Some(expected));
        assert_eq!(m.entries["blk.0.ffn_up_exps.weight"].counts, [7, 4, 13]);
    }
}
