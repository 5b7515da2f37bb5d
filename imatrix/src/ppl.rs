//! Perplexity on the way: a check that the model works on the text it is calibrated with.

/// Scores of tokens, and their running mean.
#[derive(Debug, Default)]
pub(crate) struct Perplexity {
    n: u64,
    sum: f64,
    squares: f64,
}

impl Perplexity {
    /// Adds the negative log probability of token `target` under a row of logits. `Err` with the first logit
    /// that is not finite.
    pub(crate) fn add(&mut self, logits: &[f32], target: usize) -> Result<(), usize> {
        if let Some(bad) = logits.iter().position(|l| !l.is_finite()) {
            return Err(bad);
        }
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
        let nll = sum.ln() - f64::from(logits[target] - max);
        self.n += 1;
        self.sum += nll;
        self.squares += nll * nll;
        Ok(())
    }

    fn mean(&self) -> f64 {
        self.sum / self.n as f64
    }

    /// The perplexity so far.
    pub(crate) fn value(&self) -> f64 {
        self.mean().exp()
    }

    /// The perplexity's standard error; `None` where it cannot be told.
    pub(crate) fn error(&self) -> Option<f64> {
        let var = self.squares / self.n as f64 - self.mean() * self.mean();
        (self.n > 1 && var > 0.0).then(|| (var / (self.n - 1) as f64).sqrt() * self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_cost_the_size_of_the_vocabulary() {
        let mut p = Perplexity::default();
        for target in 0..4 {
            p.add(&[3.0; 4], target).unwrap();
        }
        assert!((p.value() - 4.0).abs() < 1e-12 && p.error().is_none());
        p.add(&[0.0, 0.0, 2.0, 0.0], 2).unwrap();
        let nll = (3.0 + 2_f64.exp()).ln() - 2.0;
        let mean = (4.0 * 4_f64.ln() + nll) / 5.0;
        assert!((p.value() - mean.exp()).abs() < 1e-12 && p.error().is_some());
        assert_eq!(p.add(&[0.0, f32::NAN], 0), Err(1));
    }
}
