//! Shares and how sure they are.

/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_963_984_54;

/// How many of `n` are right; a fraction where it is an expectation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) n: usize,
    pub(super) right: f64,
}

impl Share {
    pub(super) fn add(&mut self, right: bool) {
        self.n += 1;
        self.right += f64::from(u8::from(right));
    }

    fn value(&self) -> f64 {
        self.right / self.n.max(1) as f64
    }

    pub(super) fn percent(&self) -> f64 {
        100.0 * self.value()
    }

    /// Standard error of the share, in percent.
    pub(super) fn stderr(&self) -> f64 {
        let p = self.value();
        100.0 * (p * (1.0 - p) / self.n.saturating_sub(1).max(1) as f64).sqrt()
    }

    /// The 95 % interval of Wilson (1927), in percent.
    pub(super) fn interval(&self) -> [f64; 2] {
        let (p, n, zz) = (self.value(), self.n.max(1) as f64, Z * Z);
        let whole = 1.0 + zz / n;
        let middle = (p + zz / (2.0 * n)) / whole;
        let half = Z / whole * (p * (1.0 - p) / n + zz / (4.0 * n * n)).sqrt();
        [100.0 * (middle - half), 100.0 * (middle + half)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_wilson_s() {
        let share = Share { n: 10, right: 7.0 };
        // Roots p of (0.7 - p)^2 = z^2 p (1 - p) / 10.
        for p in share.interval().map(|p| p / 100.0) {
            assert!(
                ((0.7 - p) * (0.7 - p) - Z * Z * p * (1.0 - p) / 10.0).abs() < 1e-12,
                "{p}"
            );
        }
        assert!((share.stderr() - 100.0 * (0.21f64 / 9.0).sqrt()).abs() < 1e-12);
        let one = Share { n: 1, right: 1.0 };
        assert!((one.interval()[1] - 100.0).abs() < 1e-9 && one.stderr() == 0.0);
    }
}
