//! Signed codes without a minimum, improved one at a time.

use super::{TINY, largest};
use crate::simd::{Lanes, Simd};

/// Passes over the codes at most.
const PASSES: usize = 5;

/// For each lane, codes and the scale of `x ≈ scale · (code - n_max)` with weights `x²`: starts from the scale of
/// the largest magnitude, then changes single codes while that lowers the error. Codes are in `0..2 * n_max`;
/// all 0 in a lane of zeros, with scale 0.
#[inline(always)]
pub(crate) fn symmetric_descent<S: Simd, const N: usize>(
    simd: S,
    n_max: f32,
    x: &[S::Lanes; N],
) -> (S::Lanes, [S::Lanes; N]) {
    let zero = simd.splat(0.0);
    let (lo, hi) = (simd.splat(-n_max), simd.splat(n_max - 1.0));
    let max = largest(simd, x);
    let mut codes = [zero; N];
    let mut sum_lx = zero;
    let mut sum_l2 = zero;
    let factor = lo / max;
    for i in 0..N {
        let l = (factor * x[i]).nint().clamp(lo, hi);
        let w = x[i] * x[i];
        codes[i] = l;
        sum_lx = sum_lx + w * x[i] * l;
        sum_l2 = sum_l2 + w * l * l;
    }
    for _ in 0..PASSES {
        let mut changed = zero.gt(zero);
        for i in 0..N {
            let (x, old) = (x[i], codes[i]);
            let w = x * x;
            let wx = w * x;
            let rest_lx = sum_lx - wx * old;
            let rest_l2 = sum_l2 - w * old * old;
            let new = (x * rest_l2 / rest_lx).nint().clamp(lo, hi);
            let lx = rest_lx + wx * new;
            let l2 = rest_l2 + w * new * new;
            let better = (lx * lx * sum_l2).gt(sum_lx * sum_lx * l2);
            let accept = rest_lx.gt(zero) & !new.same(old) & l2.gt(zero) & better;
            codes[i] = S::Lanes::select(accept, new, old);
            sum_lx = S::Lanes::select(accept, lx, sum_lx);
            sum_l2 = S::Lanes::select(accept, l2, sum_l2);
            changed = changed | accept;
        }
        // A lane without a change has none in a later pass either, so the lanes need not stop one by one.
        if !S::Lanes::any(changed) {
            break;
        }
    }
    let tiny = simd.splat(TINY).gt(max.abs());
    let scale = S::Lanes::select(sum_l2.gt(zero), sum_lx / sum_l2, zero);
    for code in &mut codes {
        *code = S::Lanes::select(tiny, zero, *code - lo);
    }
    (S::Lanes::select(tiny, zero, scale), codes)
}
