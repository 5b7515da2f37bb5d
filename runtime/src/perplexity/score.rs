//! What one row of logits says of one token.

use crate::kernels::elementwise::lane_sum;
use crate::kernels::exp;

/// Partial sums of a row; element `i` goes to lane `i % LANES`.
const LANES: usize = 8;

/// Softmax of a row, without the row: its maximum and `ln sum e^(l - max)`.
#[derive(Clone, Copy, Debug)]
pub struct LogSum {
    /// Largest logit.
    pub max: f32,
    /// Logarithm of the sum, added up in f64.
    pub ln_sum: f64,
}

impl LogSum {
    /// `Err` with the index of the first logit that is no finite number.
    pub fn of(logits: &[f32]) -> Result<Self, usize> {
        if let Some(bad) = logits.iter().position(|l| !l.is_finite()) {
            return Err(bad);
        }
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut lanes = [0.0f64; LANES];
        let mut chunks = logits.chunks_exact(LANES);
        for c in &mut chunks {
            for (lane, l) in lanes.iter_mut().zip(c) {
                *lane += f64::from(exp(l - max));
            }
        }
        for (lane, l) in lanes.iter_mut().zip(chunks.remainder()) {
            *lane += f64::from(exp(l - max));
        }
        let sum = lane_sum(lanes);
        Ok(Self {
            max,
            ln_sum: sum.ln(),
        })
    }

    /// Negative log probability of a token with this logit; the logarithms subtract in f64.
    pub fn nll(&self, logit: f32) -> f64 {
        self.ln_sum - f64::from(logit - self.max)
    }

    /// `ln sum e^l` in f32, as files of log probabilities and comparisons with them need it.
    pub fn total(&self) -> f32 {
        self.max + self.ln_sum as f32
    }
}

/// A sum of values with the sum of their squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Sum of the values.
    pub sum: f64,
    /// Sum of their squares.
    pub squares: f64,
}

impl Sums {
    /// Adds a value.
    pub fn add(&mut self, v: f64) {
        self.sum += v;
        self.squares += v * v;
    }

    /// Adds the values of another sum.
    pub fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// The mean of `n` values.
    pub fn mean(&self, n: usize) -> f64 {
        self.sum / n as f64
    }

    /// The mean's standard error; `None` where the variance comes out as nothing or less.
    pub fn stderr(&self, n: usize) -> Option<f64> {
        let mean = self.mean(n);
        let var = self.squares / n as f64 - mean * mean;
        (var > 0.0 && n > 1).then(|| (var / (n - 1) as f64).sqrt())
    }
}

/// The running perplexity.
#[derive(Clone, Debug, Default)]
pub struct Perplexity {
    /// Negative log probabilities.
    pub nll: Sums,
    /// Tokens scored.
    pub n: usize,
    /// Perplexity of all tokens up to the end of each chunk.
    pub by_chunk: Vec<f64>,
}

impl Perplexity {
    /// Adds the negative log probability of a token.
    pub fn add(&mut self, nll: f64) {
        self.nll.add(nll);
        self.n += 1;
    }

    /// Adds what another text gave; its chunks follow.
    pub fn merge(&mut self, other: &Self) {
        self.nll.merge(&other.nll);
        self.n += other.n;
        self.by_chunk.extend_from_slice(&other.by_chunk);
    }

    /// Closes a chunk and returns the perplexity so far.
    pub fn end_chunk(&mut self) -> f64 {
        let ppl = self.value();
        self.by_chunk.push(ppl);
        ppl
    }

    /// The perplexity so far.
    pub fn value(&self) -> f64 {
        self.nll.mean(self.n).exp()
    }

    /// The standard error of [`Self::value`].
    pub fn stderr(&self) -> Option<f64> {
        self.nll.stderr(self.n).map(|e| e * self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_sum_matches_f64() {
        let logits: Vec<f32> = (0..1003).map(|i| (i as f32 * 0.37).sin() * 12.0).collect();
        let exact = logits.iter().map(|&l| f64::from(l).exp()).sum::<f64>().ln();
        let s = LogSum::of(&logits).unwrap();
        for &l in &logits[..20] {
            assert!((s.nll(l) - (exact - f64::from(l))).abs() < 2e-6);
        }
        assert!((f64::from(s.total()) - exact).abs() < 2e-6);
    }

    #[test]
    fn the_first_bad_logit_is_named() {
        assert_eq!(LogSum::of(&[1.0, f32::NAN, f32::INFINITY]).err(), Some(1));
        assert_eq!(LogSum::of(&[f32::NEG_INFINITY]).err(), Some(0));
    }

    #[test]
    fn error_of_a_mean() {
        let mut p = Perplexity::default();
        for nll in [1.0, 2.0, 3.0, 4.0] {
            p.add(nll);
        }
        assert_eq!(p.end_chunk(), 2.5f64.exp());
        // Variance 1.25, over n - 1 = 3.
        assert!((p.stderr().unwrap() - (1.25f64 / 3.0).sqrt() * 2.5f64.exp()).abs() < 1e-12);
        let mut flat = Perplexity::default();
        flat.add(1.0);
        flat.add(1.0);
        assert!(flat.stderr().is_none());
    }
}
