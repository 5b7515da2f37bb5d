//! How far a model's predictions are from the base model's.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::base::BaseRow;
use super::compact;
use super::score::{LogSum, Sums};
use crate::kernels::elementwise::lane_sum;
use crate::kernels::exp;

/// Partial sums of a row; element `i` goes to lane `i % LANES`.
const LANES: usize = 8;
/// Base probabilities below `e^-16` are left out: the base file cuts them off.
const CUT: f32 = -16.0;
/// Predictions below which no statistics are worth showing.
pub(super) const MIN_COUNT: usize = 100;

/// One position compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    pub(super) nll: f64,
    nll_base: f64,
    kld: f64,
    /// Probability of the right token minus its probability in the base.
    dp: f64,
    same_top: bool,
    /// Sum of the base's probabilities that count.
    base_sum: f64,
    /// What a compact base leaves out.
    left_out: Option<LeftOut>,
}

/// What a compact base leaves out.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut {
    probability: f64,
    /// What the divergence can be too small by.
    kld: f64,
}

impl Comparison {
    /// What is wrong with the base's probabilities, if anything.
    pub(super) fn fault(&self, n_vocab: usize) -> Option<String> {
        BaseRow::fault_of_sum(n_vocab, self.base_sum)
    }

    /// Compares with a row of a base file, in f32 as the reference does.
    pub(super) fn new(logits: &[f32], sum: &LogSum, base: BaseRow<'_>, target: usize) -> Self {
        let total = sum.total();
        let nll = total - logits[target];
        let nll_base = -base.log_prob(target);
        let both = logits.iter().copied().zip(base.log_probs());
        let rows = Rows::compare(both, |l, p| {
            (p > CUT).then(|| {
                let probability = exp(p);
                (probability, f64::from(probability * (p - l + total)))
            })
        });
        Self {
            nll: f64::from(nll),
            nll_base: f64::from(nll_base),
            kld: rows.kld,
            dp: f64::from(exp(-nll) - exp(-nll_base)),
            same_top: rows.same_top,
            base_sum: rows.base_sum,
            left_out: None,
        }
    }

    /// Compares with the likeliest tokens of the base, all others taken as one.
    pub(super) fn compact(logits: &[f32], sum: &LogSum, base: compact::Row<'_>, target: usize) -> Self {
        // Below it the rest of the model's probability is noise of the sums.
        const LEAST: f64 = 1e-8;
        let (mut kld, mut kept) = (0.0, 0.0);
        let mut top_base = (0, f32::NEG_INFINITY);
        for (id, p) in base.kept() {
            let log_prob = -sum.nll(logits[id]);
            let p_exact = f64::from(p);
            kld += p_exact.exp() * (p_exact - log_prob);
            kept += log_prob.exp();
            if p > top_base.1 {
                top_base = (id, p);
            }
        }
        let left_out = f64::from(base.left_out);
        if left_out > 0.0 {
            kld += left_out * (left_out / (1.0 - kept).max(LEAST)).ln();
        }
        let (mut top, mut least) = ((0, f32::NEG_INFINITY), f32::INFINITY);
        for (i, &l) in logits.iter().enumerate() {
            if l > top.1 {
                top = (i, l);
            }
            least = least.min(l);
        }
        let (nll, nll_base) = (sum.nll(logits[target]), f64::from(base.nll));
        Self {
            nll,
            nll_base,
            kld,
            dp: (-nll).exp() - (-nll_base).exp(),
            same_top: top.0 == top_base.0,
            base_sum: 1.0,
            left_out: Some(LeftOut {
                probability: left_out,
                kld: left_out * (f64::from(base.min) + sum.nll(least)).max(0.0),
            }),
        }
    }

    /// Compares with the base's own logits: nothing is cut off, differences are taken in f64.
    pub(super) fn exact(
        logits: &[f32],
        sum: &LogSum,
        base_logits: &[f32],
        base_sum: &LogSum,
        target: usize,
    ) -> Self {
        let nll = sum.nll(logits[target]);
        let nll_base = base_sum.nll(base_logits[target]);
        let ln_sum = base_sum.ln_sum as f32;
        let both = logits.iter().copied().zip(base_logits.iter().copied());
        let rows = Rows::compare(both, |l, b| {
            let probability = exp(b - base_sum.max - ln_sum);
            Some((
                probability,
                f64::from(probability) * (sum.nll(l) - base_sum.nll(b)),
            ))
        });
        Self {
            nll,
            nll_base,
            kld: rows.kld,
            dp: (-nll).exp() - (-nll_base).exp(),
            same_top: rows.same_top,
            base_sum: rows.base_sum,
            left_out: None,
        }
    }
}

/// What comes of two rows side by side.
struct Rows {
    kld: f64,
    same_top: bool,
    base_sum: f64,
}

impl Rows {
    /// `part` gives the base's probability of a token and its share of the divergence from the model's and the
    /// base's element, if it counts.
    fn compare(
        both: impl Iterator<Item = (f32, f32)>,
        part: impl Fn(f32, f32) -> Option<(f32, f64)>,
    ) -> Self {
        let (mut lanes, mut sums) = ([0.0f64; LANES], [0.0f64; LANES]);
        let (mut top, mut top_base) = ((0, f32::NEG_INFINITY), (0, f32::NEG_INFINITY));
        for (i, (l, b)) in both.enumerate() {
            if let Some((probability, share)) = part(l, b) {
                lanes[i % LANES] += share;
                sums[i % LANES] += f64::from(probability);
            }
            if l > top.1 {
                top = (i, l);
            }
            if b > top_base.1 {
                top_base = (i, b);
            }
        }
        Self {
            kld: lane_sum(lanes),
            same_top: top.0 == top_base.0,
            base_sum: sums.iter().sum(),
        }
    }
}

/// A value with its standard error.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) stderr: f64,
}

impl Estimate {
    fn scaled(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            stderr: self.stderr * factor,
        }
    }

    fn mean(sums: &Sums, n: usize) -> Self {
        let stderr = if n > 10 {
            sums.stderr(n).unwrap_or(0.0)
        } else {
            0.0
        };
        Self {
            value: sums.mean(n),
            stderr,
        }
    }

    /// `e^value`, the error to first order.
    fn exp(self) -> Self {
        let value = self.value.exp();
        Self {
            value,
            stderr: value * self.stderr,
        }
    }
}

/// The running comparison.
#[derive(Clone, Debug, Default)]
pub(super) struct Divergence {
    n: usize,
    nll: Sums,
    nll_base: Sums,
    /// Sum of `nll * nll_base`.
    cross: f64,
    kld: Sums,
    dp: Sums,
    /// Of the squares.
    dp2: Sums,
    n_same_top: usize,
    /// Sums of what a compact base leaves out.
    left_out: Option<LeftOut>,
    klds: Vec<f32>,
    dps: Vec<f32>,
}

impl Divergence {
    pub(super) fn add(&mut self, c: &Comparison) {
        let Comparison {
            nll, nll_base, dp, ..
        } = *c;
        self.n += 1;
        self.nll.add(nll);
        self.nll_base.add(nll_base);
        self.cross += nll * nll_base;
        self.kld.add(c.kld);
        self.dp.add(dp);
        self.dp2.add(dp * dp);
        self.n_same_top += usize::from(c.same_top);
        if let Some(c) = c.left_out {
            self.leave_out(c);
        }
        self.klds.push(c.kld as f32);
        self.dps.push(dp as f32);
    }

    fn leave_out(&mut self, more: LeftOut) {
        let sum = self.left_out.get_or_insert_default();
        sum.probability += more.probability;
        sum.kld += more.kld;
    }

    /// Adds what another text gave.
    pub(super) fn merge(&mut self, other: &Self) {
        self.n += other.n;
        self.nll.merge(&other.nll);
        self.nll_base.merge(&other.nll_base);
        self.cross += other.cross;
        self.kld.merge(&other.kld);
        self.dp.merge(&other.dp);
        self.dp2.merge(&other.dp2);
        self.n_same_top += other.n_same_top;
        if let Some(other) = other.left_out {
            self.leave_out(other);
        }
        self.klds.extend_from_slice(&other.klds);
        self.dps.extend_from_slice(&other.dps);
    }

    pub(super) fn n(&self) -> usize {
        self.n
    }

    pub(super) fn ppl(&self) -> Estimate {
        Estimate::mean(&self.nll, self.n).exp()
    }

    fn ppl_base(&self) -> Estimate {
        Estimate::mean(&self.nll_base, self.n).exp()
    }

    /// Covariance of the two means.
    fn covariance(&self) -> f64 {
        if self.n < 10 {
            return 0.0;
        }
        let n = self.n as f64;
        (self.cross / n - self.nll.mean(self.n) * self.nll_base.mean(self.n)) / (n - 1.0)
    }

    pub(super) fn ln_ratio(&self) -> Estimate {
        let (q, b) = (
            Estimate::mean(&self.nll, self.n),
            Estimate::mean(&self.nll_base, self.n),
        );
        let var = q.stderr * q.stderr + b.stderr * b.stderr - 2.0 * self.covariance();
        Estimate {
            value: q.value - b.value,
            stderr: var.max(0.0).sqrt(),
        }
    }

    pub(super) fn mean_kld(&self) -> Estimate {
        Estimate::mean(&self.kld, self.n)
    }

    /// Root mean square of the probability differences, in percent.
    pub(super) fn rms_dp(&self) -> Estimate {
        let mean = Estimate::mean(&self.dp2, self.n);
        let rms = mean.value.sqrt();
        let stderr = if rms > 0.0 { 0.5 / rms * mean.stderr } else { 0.0 };
        Estimate { value: rms, stderr }.scaled(100.0)
    }

    /// How often both models have the same most probable token, in percent.
    pub(super) fn same_top(&self) -> Estimate {
        let n = self.n as f64;
        let p = self.n_same_top as f64 / n;
        Estimate {
            value: p,
            stderr: (p * (1.0 - p) / (n - 1.0).max(1.0)).sqrt(),
        }
        .scaled(100.0)
    }

    pub(super) fn summary(&self) -> Summary {
        let (ppl, ppl_base, cov) = (self.ppl(), self.ppl_base(), self.covariance());
        let (q, b) = (
            Estimate::mean(&self.nll, self.n),
            Estimate::mean(&self.nll_base, self.n),
        );
        let ln_ratio = self.ln_ratio();
        let var = ppl.stderr * ppl.stderr + ppl_base.stderr * ppl_base.stderr
            - 2.0 * ppl.value * ppl_base.value * cov;
        // Without spread there is nothing to correlate.
        let spread = q.stderr * b.stderr;
        let correlation = (spread > 0.0).then(|| 100.0 * cov / spread);
        let mean_dp = Estimate::mean(&self.dp, self.n).scaled(100.0);
        let percent: Vec<f32> = self.dps.iter().map(|v| v * 100.0).collect();
        Summary {
            ppl,
            ppl_base,
            correlation_percent: correlation,
            ln_ratio,
            ratio: ln_ratio.exp(),
            difference: Estimate {
                value: ppl.value - ppl_base.value,
                stderr: var.max(0.0).sqrt(),
            },
            kld: Distribution::new(self.mean_kld(), &self.klds),
            dp_percent: Distribution::new(mean_dp, &percent),
            rms_dp_percent: self.rms_dp(),
            same_top_percent: self.same_top(),
            compact_base: self.left_out.map(|sum| CompactBase {
                left_out: sum.probability / self.n as f64,
                kld_error_bound: sum.kld / self.n as f64,
            }),
        }
    }
}

/// All statistics of a comparison.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Summary {
    #[serde(skip)]
    pub(super) ppl: Estimate,
    pub(super) ppl_base: Estimate,
    pub(super) correlation_percent: Option<f64>,
    pub(super) ln_ratio: Estimate,
    pub(super) ratio: Estimate,
    pub(super) difference: Estimate,
    pub(super) kld: Distribution,
    pub(super) dp_percent: Distribution,
    pub(super) rms_dp_percent: Estimate,
    pub(super) same_top_percent: Estimate,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compact_base: Option<CompactBase>,
}

/// How exact a comparison with a compact base is.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CompactBase {
    /// Mean probability of the tokens left out.
    pub(super) left_out: f64,
    /// The mean divergence of all tokens is larger by no more than this.
    pub(super) kld_error_bound: f64,
}

impl Summary {
    /// The first statistic that is no finite number, by its key in JSON.
    pub(super) fn first_non_finite(&self) -> Option<String> {
        let ppl = [("ppl", self.ppl.value), ("ppl_stderr", self.ppl.stderr)];
        let correlation = self.correlation_percent.map(|c| ("correlation_percent", c));
        let named = ppl.into_iter().chain(correlation);
        // JSON has no place for such numbers and shows null; a correlation may be null by right.
        named
            .filter(|(_, v)| !v.is_finite())
            .map(|(name, _)| name.to_owned())
            .next()
            .or_else(|| json!(self).as_object().and_then(first_null))
    }
}

/// The dotted path of the first null beside the correlation's.
fn first_null(object: &Map<String, Value>) -> Option<String> {
    object.iter().find_map(|(key, value)| match value {
        Value::Null if key != "correlation_percent" => Some(key.clone()),
        Value::Object(inner) => first_null(inner).map(|rest| format!("{key}.{rest}")),
        _ => None,
    })
}

/// Mean and percentiles.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Distribution {
    pub(super) mean: f64,
    pub(super) mean_stderr: f64,
    pub(super) maximum: f32,
    pub(super) p99_9: f32,
    pub(super) p99: f32,
    pub(super) p95: f32,
    pub(super) p90: f32,
    pub(super) p75: f32,
    pub(super) median: f32,
    pub(super) p25: f32,
    pub(super) p10: f32,
    pub(super) p5: f32,
    pub(super) p1: f32,
    pub(super) p0_1: f32,
    pub(super) minimum: f32,
}

impl Distribution {
    fn new(mean: Estimate, values: &[f32]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f32::total_cmp);
        let at = |fraction| percentile(&sorted, fraction);
        Self {
            mean: mean.value,
            mean_stderr: mean.stderr,
            maximum: at(1.0),
            p99_9: at(0.999),
            p99: at(0.99),
            p95: at(0.95),
            p90: at(0.9),
            p75: at(0.75),
            median: at(0.5),
            p25: at(0.25),
            p10: at(0.1),
            p5: at(0.05),
            p1: at(0.01),
            p0_1: at(0.001),
            minimum: at(0.0),
        }
    }
}

/// Linear interpolation between the two values around the place; NaN of nothing.
fn percentile(sorted: &[f32], fraction: f32) -> f32 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f32::NAN;
    };
    let place = fraction * last as f32;
    let i = place as usize;
    if i >= last {
        return sorted[last];
    }
    let part = place - i as f32;
    (1.0 - part) * sorted[i] + part * sorted[i + 1]
}

#[cfg(test)]
mod tests {
    use super::super::base::{encode, row_bytes};
    use super::*;

    fn compare(logits: &[f32], base_logits: &[f32], target: usize) -> Comparison {
        let mut bytes = vec![0; row_bytes(base_logits.len())];
        encode(base_logits, &LogSum::of(base_logits).unwrap(), &mut bytes);
        let base = BaseRow::new(&bytes, base_logits.len());
        Comparison::new(logits, &LogSum::of(logits).unwrap(), base, target)
    }

    fn exact(logits: &[f32], base: &[f32], target: usize) -> Comparison {
        let (sum, base_sum) = (LogSum::of(logits).unwrap(), LogSum::of(base).unwrap());
        Comparison::exact(logits, &sum, base, &base_sum, target)
    }

    #[test]
    fn divergence_of_a_model_from_itself_is_small() {
        let logits: Vec<f32> = (0..77).map(|i| (i as f32 * 1.3).cos() * 4.0).collect();
        let c = compare(&logits, &logits, 5);
        assert!(c.kld.abs() < 1e-4 && c.same_top && c.dp.abs() < 1e-4, "{c:?}");
        assert!((c.nll - c.nll_base).abs() < 1e-3);
        let c = exact(&logits, &logits, 5);
        assert_eq!((c.kld, c.dp, c.nll, c.same_top), (0.0, 0.0, c.nll_base, true));
    }

    #[test]
    fn divergence_matches_its_definition() {
        let (q, b) = ([1.0f32, 2.0, 0.5, -1.0], [2.0f32, 1.0, 0.0, 0.5]);
        let soft = |l: &[f32]| -> Vec<f64> {
            let sum: f64 = l.iter().map(|&x| f64::from(x).exp()).sum();
            l.iter().map(|&x| f64::from(x).exp() / sum).collect()
        };
        let (p, pb) = (soft(&q), soft(&b));
        let want: f64 = pb.iter().zip(&p).map(|(b, q)| b * (b / q).ln()).sum();
        let c = compare(&q, &b, 1);
        assert!((c.kld - want).abs() < 1e-3 * want, "{} is not {want}", c.kld);
        assert!(!c.same_top);
        assert!((c.dp - (p[1] - pb[1])).abs() < 1e-4);
        let c = exact(&q, &b, 1);
        assert!((c.kld - want).abs() < 1e-6 * want, "{} is not {want}", c.kld);
        assert!((c.dp - (p[1] - pb[1])).abs() < 1e-6 && (c.base_sum - 1.0).abs() < 1e-6);
    }

    #[test]
    fn percentiles_interpolate() {
        let v = [1.0f32, 2.0, 4.0, 8.0];
        assert_eq!(percentile(&v, 0.5), 3.0);
        assert_eq!(percentile(&v, 0.0), 1.0);
        assert_eq!(percentile(&v, 1.0), 8.0);
        assert_eq!(percentile(&v, 0.75), 5.0);
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn equal_models_have_no_ratio() {
        let mut d = Divergence::default();
        for i in 0..200 {
            let nll = 1.0 + f64::from(i % 7) * 0.5;
            d.add(&Comparison {
                nll,
                nll_base: nll,
                kld: 0.0,
                dp: 0.0,
                same_top: true,
                base_sum: 1.0,
                left_out: None,
            });
        }
        let s = d.summary();
        assert_eq!(s.first_non_finite(), None);
        assert_eq!(
            (s.ratio.value, s.difference.value, s.rms_dp_percent.value),
            (1.0, 0.0, 0.0)
        );
        assert!((s.correlation_percent.unwrap() - 100.0).abs() < 1e-9);
        assert!(s.ratio.stderr < 1e-6 && s.ppl.stderr > 0.0);
        assert_eq!(s.same_top_percent.value, 100.0);
    }

    #[test]
    fn statistics_that_are_no_numbers_are_named() {
        let with = |kld: f64, nll: f64| {
            let mut d = Divergence::default();
            for _ in 0..200 {
                d.add(&Comparison {
                    nll,
                    nll_base: 1.0,
                    kld,
                    dp: 0.0,
                    same_top: true,
                    base_sum: 1.0,
                    left_out: None,
                });
            }
            d.summary()
        };
        let flat = with(0.5, 1.0);
        assert_eq!((flat.correlation_percent, flat.first_non_finite()), (None, None));
        assert_eq!(
            with(f64::INFINITY, 1.0).first_non_finite().as_deref(),
            Some("kld.mean")
        );
        assert_eq!(with(0.5, 1e30).first_non_finite().as_deref(), Some("ppl"));
    }
}
