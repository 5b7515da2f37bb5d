//! Codes from zero up without a minimum, for numbers that are not negative: `x ≈ scale · code`.

use super::TINY;
use crate::simd::{Lanes, Simd};

/// Passes over the codes at most.
const PASSES: usize = 5;

/// For each lane, codes in `0..=n_max` and the scale, first over a grid, then by changing single codes. A negative
/// `x` gives a code that wrapped round in 8 bits, as the files of the reference have it.
#[inline(always)]
pub(crate) fn positive<S: Simd, const N: usize>(
    simd: S,
    n_max: f32,
    x: &[S::Lanes; N],
    w: &[S::Lanes; N],
) -> (S::Lanes, [S::Lanes; N]) {
    let (zero, top) = (simd.splat(0.0), simd.splat(n_max));
    let mut max = zero;
    for x in x {
        max = x.max(max);
    }
    let factor = best_factor(simd, n_max, max, x, w);
    let mut codes = [zero; N];
    let mut sum_lx = zero;
    let mut sum_l2 = zero;
    for i in 0..N {
        let l = (factor * x[i]).nint().min(top);
        codes[i] = wrap(simd, l);
        sum_lx = sum_lx + w[i] * x[i] * l;
        sum_l2 = sum_l2 + w[i] * l * l;
    }
    for _ in 0..PASSES {
        let mut changed = zero.gt(zero);
        for i in 0..N {
            let (x, w, old) = (x[i], w[i], codes[i]);
            let rest_lx = sum_lx - w * x * old;
            let rest_l2 = sum_l2 - w * old * old;
            let new = (x * rest_l2 / rest_lx).nint().min(top);
            let lx = rest_lx + w * x * new;
            let l2 = rest_l2 + w * new * new;
            let better = (lx * lx * sum_l2).gt(sum_lx * sum_lx * l2);
            let accept = rest_lx.gt(zero) & rest_l2.gt(zero) & !new.same(old) & better;
            codes[i] = S::Lanes::select(accept, wrap(simd, new), old);
            sum_lx = S::Lanes::select(accept, lx, sum_lx);
            sum_l2 = S::Lanes::select(accept, l2, sum_l2);
            changed = changed | accept;
        }
        if !S::Lanes::any(changed) {
            break;
        }
    }
    let tiny = simd.splat(TINY).gt(max);
    let scale = S::Lanes::select(sum_l2.gt(zero), sum_lx / sum_l2, zero);
    for code in &mut codes {
        *code = S::Lanes::select(tiny, zero, *code);
    }
    (S::Lanes::select(tiny, zero, scale), codes)
}

/// A whole number in 8 bits. All steps are exact.
#[inline(always)]
fn wrap<S: Simd>(simd: S, v: S::Lanes) -> S::Lanes {
    let range = simd.splat(256.0);
    let rest = v - (v * simd.splat(1.0 / 256.0)).trunc() * range;
    S::Lanes::select(simd.splat(0.0).gt(rest), rest + range, rest)
}

/// The factor from numbers to codes with the least error among the plain one and four to either side.
#[inline(always)]
fn best_factor<S: Simd, const N: usize>(
    simd: S,
    n_max: f32,
    max: S::Lanes,
    x: &[S::Lanes; N],
    w: &[S::Lanes; N],
) -> S::Lanes {
    let (one, top) = (simd.splat(1.0), simd.splat(n_max));
    let mut factor = top / max;
    let scale = one / factor;
    let mut best = simd.splat(0.0);
    for i in 0..N {
        let diff = x[i] - scale * wrap(simd, (factor * x[i]).nint());
        best = best + w[i] * diff * diff;
    }
    for step in [-4i8, -3, -2, -1, 1, 2, 3, 4] {
        let tried = simd.splat(0.1 * f32::from(step) + n_max) / max;
        let scale = one / tried;
        let mut error = simd.splat(0.0);
        for i in 0..N {
            let diff = x[i] - scale * (tried * x[i]).nint().min(top);
            error = error + w[i] * diff * diff;
        }
        let lower = best.gt(error);
        best = S::Lanes::select(lower, error, best);
        factor = S::Lanes::select(lower, tried, factor);
    }
    factor
}
