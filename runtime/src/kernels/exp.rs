//! The exponential function, without a table and without branches, so that loops over it become vector code.

/// 1.5 * 2^23: added to a small number it leaves the nearest whole number in the low bits.
const SHIFT: f32 = 12_582_912.0;
/// ln 2 in two parts; products of whole numbers up to 2^10 with the first are exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// `e^r = 1 + r + r^2 p(r)` on `-ln(2)/2 ..= ln(2)/2`; highest power first (Cephes' `expf`).
const P: [f32; 6] = [
    1.987_569_1e-4,
    1.398_199_9e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    0.5,
];

/// `e^x`, the same bits at every CPU level. The relative error is below 2e-7 wherever the result is a normal
/// number; below that the result loses bits gradually and ends at 0, above the range it is infinite.
#[inline]
pub fn exp(x: f32) -> f32 {
    // From -104 down the result is 0, from 89 up it is infinite.
    let x = x.clamp(-104.0, 89.0);
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let n = shifted - SHIFT;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let p = P[1..].iter().fold(P[0], |p, c| p * r + c);
    let e = r * r * p + r + 1.0;
    // Two factors, because 2^n alone can be out of range where the result is not.
    let n = (shifted.to_bits() as i32).wrapping_sub(SHIFT.to_bits() as i32);
    let half = n >> 1;
    e * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `e^x` for x up to 0, with fused steps: the same bits at every CPU level. The relative error is below 2e-7 down to
/// -87, below that the result is 0.
#[inline(always)]
pub(crate) fn exp_below_0(x: f32) -> f32 {
    const LOWEST: f32 = -87.0;
    /// Leaves the exponent of 2^n, not n, in the low bits.
    const SHIFT_127: f32 = SHIFT + 127.0;
    // NaN stays.
    let c = if LOWEST > x { LOWEST } else { x };
    let shifted = c.mul_add(std::f32::consts::LOG2_E, SHIFT_127);
    let n = shifted - SHIFT_127;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, c));
    let p = P[1..].iter().fold(P[0], |p, c| p.mul_add(r, *c));
    let e = (r * r).mul_add(p, r) + 1.0;
    let e = e * f32::from_bits(shifted.to_bits() << 23);
    if LOWEST > x { 0.0 } else { e }
}

#[inline]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relative_error_is_small() {
        let mut worst = 0.0f64;
        // Every 97th float whose exponential is a normal number.
        for sign in [0, 0x8000_0000] {
            for bits in (0..88.7f32.to_bits()).step_by(97) {
                let x = f32::from_bits(bits | sign);
                if x < -87.3 {
                    continue;
                }
                let exact = f64::from(x).exp();
                worst = worst.max((f64::from(exp(x)) / exact - 1.0).abs());
            }
        }
        assert!(worst < 2e-7, "{worst}");
    }

    #[test]
    fn the_fused_one_is_as_good_below_0() {
        let mut worst = 0.0f64;
        for bits in (0..87f32.to_bits()).step_by(997) {
            let x = -f32::from_bits(bits);
            worst = worst.max((f64::from(exp_below_0(x)) / f64::from(x).exp() - 1.0).abs());
        }
        assert!(worst < 2e-7, "{worst}");
        assert_eq!(exp_below_0(0.0), 1.0);
        assert_eq!(exp_below_0(-87.5), 0.0);
        assert_eq!(exp_below_0(f32::NEG_INFINITY), 0.0);
        for bits in [0x7fc0_0000, 0x7fff_ffff, 0xffc1_2345] {
            assert!(exp_below_0(f32::from_bits(bits)).is_nan());
        }
    }

    #[test]
    fn the_ends_are_right() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        for x in [f32::NEG_INFINITY, f32::MIN, -1e9, -104.0] {
            assert_eq!(exp(x), 0.0, "{x}");
        }
        for x in [f32::INFINITY, f32::MAX, 89.0] {
            assert_eq!(exp(x), f32::INFINITY, "{x}");
        }
        assert!(exp(f32::NAN).is_nan());
        // Results that are not normal numbers: the error is at most a few of the smallest steps.
        for i in 0..1000 {
            let x = -87.3 - i as f32 * 0.0167;
            assert!(
                (f64::from(exp(x)) - f64::from(x).exp()).abs() < 2.0 * f64::from(f32::from_bits(1)),
                "{x}"
            );
        }
    }
}
