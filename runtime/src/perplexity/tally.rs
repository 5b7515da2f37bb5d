//! What a model scored.

use super::kl::{Comparison, Divergence, Estimate};
use super::score::Perplexity;

/// The scores of one model on one text, or on all.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) perplexity: Perplexity,
    /// Bytes of text that the scored tokens stand for.
    pub(super) n_bytes: u64,
    /// Beside a base.
    pub(super) divergence: Option<Divergence>,
}

/// One prediction: negative log probability of the right token and, beside a base, the comparison.
pub(super) type Score = (f64, Option<Comparison>);

impl Tally {
    pub(super) fn compared() -> Self {
        Self {
            divergence: Some(Divergence::default()),
            ..Self::default()
        }
    }

    /// Adds the prediction of a token of `n_bytes` bytes.
    pub(super) fn add(&mut self, (nll, comparison): Score, n_bytes: u64) {
        self.perplexity.add(nll);
        self.n_bytes += n_bytes;
        if let (Some(c), Some(d)) = (comparison, &mut self.divergence) {
            d.add(&c);
        }
    }

    /// The scores of all texts together.
    pub(super) fn of_all(texts: &[Self]) -> Self {
        let mut all = Self::default();
        for text in texts {
            all.perplexity.merge(&text.perplexity);
            all.n_bytes += text.n_bytes;
            if let Some(d) = &text.divergence {
                all.divergence.get_or_insert_default().merge(d);
            }
        }
        all
    }

    /// Bits that the text takes for each of its bytes: the negative log probabilities of the scored tokens in
    /// bits over the bytes that these tokens stand for. `None` where they stand for none.
    pub(super) fn bits_per_byte(&self) -> Option<Estimate> {
        let p = &self.perplexity;
        let per_byte = p.n as f64 / self.n_bytes as f64 / std::f64::consts::LN_2;
        (self.n_bytes > 0).then(|| Estimate {
            value: p.nll.mean(p.n) * per_byte,
            stderr: p.nll.stderr(p.n).unwrap_or(0.0) * per_byte,
        })
    }

    /// The first statistic that is no finite number.
    pub(super) fn first_non_finite(&self) -> Option<String> {
        let p = &self.perplexity;
        let plain = [("ppl", p.value()), ("ppl_stderr", p.stderr().unwrap_or(0.0))];
        let bad = plain.into_iter().find(|(_, v)| !v.is_finite());
        bad.map(|(name, _)| name.to_owned())
            .or_else(|| self.divergence.as_ref()?.summary().first_non_finite())
    }
}

/// The mean of some texts' values, each text counting the same.
pub(super) fn mean_of_texts(texts: &[Tally], value: impl Fn(&Tally) -> Option<f64>) -> Option<f64> {
    let sum = texts.iter().map(value).sum::<Option<f64>>()?;
    Some(sum / texts.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_together_are_one_long_text() {
        let mut texts = [Tally::default(), Tally::default()];
        let mut long = Tally::default();
        for i in 0..20u32 {
            let nll = f64::from(i % 5) * 0.25 + 0.5;
            texts[usize::from(i >= 8)].add((nll, None), u64::from(i % 3));
            long.add((nll, None), u64::from(i % 3));
        }
        let all = Tally::of_all(&texts);
        assert_eq!(all.perplexity.value(), long.perplexity.value());
        assert_eq!(all.n_bytes, long.n_bytes);
        let bits = all.bits_per_byte().unwrap();
        let nll = long.perplexity.nll.sum;
        assert!((bits.value - nll / 2f64.ln() / long.n_bytes as f64).abs() < 1e-12);
        assert!(bits.stderr > 0.0 && Tally::default().bits_per_byte().is_none());
        let mean = mean_of_texts(&texts, |t| Some(t.perplexity.value())).unwrap();
        let each = texts.map(|t| t.perplexity.value());
        assert_eq!(mean, f64::midpoint(each[0], each[1]));
    }
}
