//! Numbers that describe repetitions.
//!
//! The confidence interval is that of the median, from order statistics: whatever the distribution, the true median
//! lies between the k-th smallest and the k-th largest of n independent values unless fewer than k of them fall on
//! one side of it, which has the probability `2 * P(B < k)` for a binomial `B(n, 1/2)`. The largest k that keeps
//! [`LEVEL`] is taken. Fewer than six values cannot reach it; then the interval is the whole range, and its true
//! level is told.

/// Level that intervals keep where there are values enough.
pub(super) const LEVEL: f64 = 0.95;

/// What is said of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// Ends of the confidence interval of the median.
    pub(super) ci: (f64, f64),
    /// Probability that the interval covers the true median.
    pub(super) level: f64,
    pub(super) mean: f64,
    /// Standard deviation; 0 of a single value.
    pub(super) stddev: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Summary {
    /// Of at least one value.
    pub(super) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|v| (v - mean).powi(2)).sum();
        let (k, level) = rank(n);
        Self {
            median: f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
            ci: (sorted[k - 1], sorted[n - k]),
            level,
            mean,
            stddev: if n > 1 {
                (squares / (n - 1) as f64).sqrt()
            } else {
                0.0
            },
            min: sorted[0],
            max: sorted[n - 1],
        }
    }
}

/// The rank k, from 1, of the interval's ends among `n` values, and the interval's level.
pub(super) fn rank(n: usize) -> (usize, f64) {
    // Halving n times would leave no digits of the first terms of many values: their logarithms are added.
    let ln_half = -(n as f64) * std::f64::consts::LN_2;
    let (mut ln_choose, mut tail) = (0.0, 0.0);
    let mut best = (1, 1.0 - 2.0 * ln_half.exp());
    for k in 1..=n.div_ceil(2) {
        tail += (ln_choose + ln_half).exp();
        ln_choose += ((n - k + 1) as f64 / k as f64).ln();
        let level = 1.0 - 2.0 * tail;
        if level < LEVEL {
            break;
        }
        best = (k, level);
    }
    (best.0, best.1.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let s = |values: &[f64]| Summary::of(values);
        assert_eq!(s(&[3.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(s(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(s(&[2.0, 4.0]).stddev, 2f64.sqrt());
        assert_eq!((s(&[2.0]).stddev, s(&[2.0]).level), (0.0, 0.0));
        assert_eq!((s(&[2.0, 4.0]).min, s(&[2.0, 4.0]).max), (2.0, 4.0));
        assert_eq!(s(&[1.0, 2.0, 6.0]).mean, 3.0);
    }

    /// Levels as tables of the sign test have them.
    #[test]
    fn ranks_are_those_of_the_sign_test() {
        for (n, k, level) in [
            (1, 1, 0.0),
            (5, 1, 0.9375),
            (6, 1, 0.96875),
            (8, 1, 0.992_187_5),
            (9, 2, 0.960_937_5),
            (10, 2, 0.978_515_625),
            (20, 6, 0.958_610_534_667_968_8),
        ] {
            let (found, its_level) = rank(n);
            assert_eq!(found, k, "{n}");
            assert!((its_level - level).abs() < 1e-12, "{n}: {its_level}");
        }
        assert_eq!(rank(5000).0, 2431);
    }

    /// A skewed distribution as times have it: most are near the least, some far above.
    #[test]
    fn intervals_cover_the_true_median() {
        let mut state = 1u64;
        let mut time = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
            1.0 - (1.0 - uniform).ln()
        };
        let truth = 1.0 + std::f64::consts::LN_2;
        let runs = 2000;
        let mut covered = 0;
        for _ in 0..runs {
            let values: Vec<f64> = (0..10).map(|_| time()).collect();
            let ci = Summary::of(&values).ci;
            covered += usize::from(ci.0 <= truth && truth <= ci.1);
        }
        let share = covered as f64 / f64::from(runs);
        assert!((0.968..0.989).contains(&share), "{share}");
    }
}
