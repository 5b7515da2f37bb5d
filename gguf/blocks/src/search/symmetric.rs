//! Signed codes without a minimum: `x ≈ scale · (code - n_max)`.

use super::{TINY, largest, signed_max};
use crate::simd::{LANES, Lanes, Simd};

/// Starting scales tried: the plain one and nine to either side of it.
const TRIES: usize = 19;

/// What all values are multiplied with in a try, `max` being the one of largest magnitude: `-(this) / max`.
#[inline(always)]
fn numerator(n_max: f32, t: usize) -> f32 {
    match t {
        0 => n_max,
        1..=9 => n_max + 0.1 * (t as i32 - 10) as f32,
        _ => n_max + 0.1 * (t as i32 - 9) as f32,
    }
}

/// For each lane, the scale (its sign is free) that minimises the weighted squared error over a grid of starting
/// scales, and the codes, `0..2 * n_max`.
#[inline(always)]
pub(crate) fn symmetric<S: Simd, const N: usize>(
    simd: S,
    n_max: f32,
    x: &[S::Lanes; N],
    w: &[S::Lanes; N],
) -> (S::Lanes, [S::Lanes; N]) {
    let zero = simd.splat(0.0);
    let max = largest(simd, x);
    let mut wx = *w;
    for i in 0..N {
        wx[i] = w[i] * x[i];
    }
    let mut chosen = simd.splat(-n_max) / max;
    let (lx, l2) = sums(simd, n_max, x, w, &wx, chosen);
    let mut scale = S::Lanes::select(l2.same(zero), zero, lx / l2);
    let mut best = scale * lx;
    for t in 1..TRIES {
        let inverse = simd.splat(-numerator(n_max, t)) / max;
        let (lx, l2) = sums(simd, n_max, x, w, &wx, inverse);
        let better = l2.gt(zero) & (lx * lx).gt(best * l2);
        let fit = lx / l2;
        chosen = S::Lanes::select(better, inverse, chosen);
        scale = S::Lanes::select(better, fit, scale);
        best = S::Lanes::select(better, fit * lx, best);
    }
    let tiny = simd.splat(TINY).gt(max.abs());
    let mut codes = [zero; N];
    for i in 0..N {
        let code = code(simd, n_max, chosen * x[i]) + simd.splat(n_max);
        codes[i] = S::Lanes::select(tiny, zero, code);
    }
    (S::Lanes::select(tiny, zero, scale), codes)
}

/// [`symmetric`] for one group of values, with the starting scales side by side.
#[inline(always)]
pub(crate) fn symmetric_one<S: Simd, const N: usize>(
    simd: S,
    n_max: f32,
    x: &[f32; N],
    w: &[f32; N],
    codes: &mut [u8; N],
) -> f32 {
    let max = signed_max(x);
    if max.abs() < TINY {
        codes.fill(0);
        return 0.0;
    }
    let zero = simd.splat(0.0);
    let (mut values, mut weights, mut products) = ([zero; N], [zero; N], [zero; N]);
    for i in 0..N {
        values[i] = simd.splat(x[i]);
        weights[i] = simd.splat(w[i]);
        products[i] = weights[i] * values[i];
    }
    let mut chosen = 0.0;
    let mut scale = 0.0;
    let mut best = 0.0;
    for first in (0..TRIES).step_by(LANES) {
        let mut inverse = [0.0; LANES];
        for (j, inverse) in inverse.iter_mut().enumerate() {
            *inverse = -numerator(n_max, first + j) / max;
        }
        let (lx, l2) = sums(simd, n_max, &values, &weights, &products, simd.load(&inverse));
        let (lx, l2) = (lx.to_array(), l2.to_array());
        for j in 0..LANES.min(TRIES - first) {
            let (lx, l2) = (lx[j], l2[j]);
            let is_first = first + j == 0;
            if is_first || l2 > 0.0 && lx * lx > best * l2 {
                chosen = inverse[j];
                scale = if l2 == 0.0 { 0.0 } else { lx / l2 };
                best = scale * lx;
            }
        }
    }
    for i in 0..N {
        let v = super::clamp(chosen * x[i], -n_max, n_max - 1.0);
        codes[i] = (super::nint(v) + n_max) as u8;
    }
    scale
}

/// The code of a quotient. These are at most a little above `n_max` where the largest magnitude is not tiny, so
/// limiting and rounding can change places.
#[inline(always)]
fn code<S: Simd>(simd: S, n_max: f32, v: S::Lanes) -> S::Lanes {
    v.clamp(simd.splat(-n_max), simd.splat(n_max - 1.0)).round()
}

/// `Σ w·x·l` and `Σ w·l·l` for a starting scale.
#[inline(always)]
fn sums<S: Simd, const N: usize>(
    simd: S,
    n_max: f32,
    x: &[S::Lanes; N],
    w: &[S::Lanes; N],
    wx: &[S::Lanes; N],
    inverse: S::Lanes,
) -> (S::Lanes, S::Lanes) {
    let (mut sum_lx, mut sum_l2) = (simd.splat(0.0), simd.splat(0.0));
    for i in 0..N {
        let l = code(simd, n_max, inverse * x[i]);
        sum_lx = sum_lx + wx[i] * l;
        sum_l2 = sum_l2 + w[i] * l * l;
    }
    (sum_lx, sum_l2)
}
