//! The sixteen levels of `IQ4_NL` and `IQ4_XS` and the search for their scales.

use crate::search::{TINY, largest, split, spread, transpose};
use crate::simd::{LANES, Lanes, Simd};

/// The values of the codes, denser near zero.
pub(crate) const LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Where one level becomes nearer than the one below; a tie takes the upper.
const MIDPOINTS: [f32; 15] = {
    let mut out = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        out[i] = (LEVELS[i] as f32 + LEVELS[i + 1] as f32) * 0.5;
        i += 1;
    }
    out
};

/// Starting scales of a grid to either side of its middle, besides the one that gives the largest value the lowest level.
const SIDE: i8 = 7;
/// `MIDPOINTS` in sixteen places.
const THRESHOLDS: [f32; 16] = {
    let mut out = [f32::INFINITY; 16];
    let mut i = 0;
    while i < 15 {
        out[i] = MIDPOINTS[i];
        i += 1;
    }
    out
};

/// [`LEVELS`] as numbers.
const VALUES: [f32; 16] = {
    let mut out = [0.0; 16];
    let mut i = 0;
    while i < 16 {
        out[i] = LEVELS[i] as f32;
        i += 1;
    }
    out
};

/// The codes of the levels nearest to `v`, as whole numbers.
#[inline(always)]
fn nearest<S: Simd>(simd: S, v: S::Lanes) -> S::Lanes {
    // Beyond the outer midpoints nothing changes; between these limits the guess below is in 0..15.
    let near = v.clamp(simd.splat(-116.0), simd.splat(102.0));
    // The levels lie almost on a parabola on either side: its whole part at each midpoint is the code below, so the
    // code is the guess or the next.
    let slope = simd.splat(0.089_724_67) - near.abs() * simd.splat(0.000_230_066_47);
    let guess = (near * slope + simd.splat(7.866_65)).trunc();
    let above = v.ge(simd.look_up(&THRESHOLDS, guess));
    S::Lanes::select(above, guess + simd.splat(1.0), guess)
}

/// The codes of `factor · x`.
#[inline(always)]
pub(crate) fn codes<S: Simd>(simd: S, factor: f32, x: &[f32; 32]) -> [u8; 32] {
    let [a, b] = split(simd, x);
    let factor = simd.splat(factor);
    simd.low_bytes([nearest(simd, factor * a), nearest(simd, factor * b)])
}

/// The inverse of a scale, 0 for 0.
#[inline(always)]
pub(crate) fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Weights of the values of groups: by importance, together with `sigma2`, or their squares.
#[inline(always)]
pub(crate) fn weights<S: Simd>(
    simd: S,
    x: &[S::Lanes; 32],
    importance: Option<([&[f32; 32]; LANES], S::Lanes)>,
) -> [S::Lanes; 32] {
    let mut w = *x;
    if let Some((importance, sigma2)) = importance {
        w = transpose(simd, importance);
        spread::<S, 32>(x, &mut w, sigma2);
    } else {
        for w in &mut w {
            *w = *w * *w;
        }
    }
    w
}

/// For each lane, the scale of `x ≈ scale · level` with the least weighted square error among the starting scales.
#[inline(always)]
pub(crate) fn scale<S: Simd>(simd: S, x: &[S::Lanes; 32], w: &[S::Lanes; 32]) -> [f32; LANES] {
    let (zero, lowest) = (simd.splat(0.0), simd.splat(VALUES[0]));
    let max = largest(simd, x);
    let (qx, q2) = sums(simd, x, w, simd.splat(1.0) / (max.neg() / lowest));
    let mut scale = S::Lanes::select(q2.gt(zero), qx / q2, zero);
    let mut best = scale * qx;
    for step in -SIDE..=SIDE {
        let (qx, q2) = sums(simd, x, w, (simd.splat(f32::from(step)) + lowest) / max);
        let better = q2.gt(zero) & (qx * qx).gt(best * q2);
        let fit = qx / q2;
        scale = S::Lanes::select(better, fit, scale);
        best = S::Lanes::select(better, fit * qx, best);
    }
    let tiny = simd.splat(TINY).gt(max.abs());
    S::Lanes::select(tiny, zero, scale).to_array()
}

/// `Σ w·q·x` and `Σ w·q·q` for the levels `q` of a starting scale.
#[inline(always)]
fn sums<S: Simd>(simd: S, x: &[S::Lanes; 32], w: &[S::Lanes; 32], factor: S::Lanes) -> (S::Lanes, S::Lanes) {
    let (mut sum_qx, mut sum_q2) = (simd.splat(0.0), simd.splat(0.0));
    for i in 0..32 {
        let q = simd.look_up(&VALUES, nearest(simd, factor * x[i]));
        let wq = w[i] * q;
        sum_qx = sum_qx + wq * x[i];
        sum_q2 = sum_q2 + wq * q;
    }
    (sum_qx, sum_q2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Baseline;

    #[test]
    fn each_value_takes_its_nearest_level() {
        let check = |v: f32| {
            let code = codes(Baseline, 1.0, &[v; 32])[0];
            let above = MIDPOINTS.iter().filter(|mid| v >= **mid).count();
            assert_eq!(usize::from(code), above, "{v}");
        };
        for i in -4000..4000 {
            check(i as f32 / 20.0);
        }
        // A tie belongs to the upper level.
        for mid in MIDPOINTS {
            for ulps in -3..=3 {
                check(f32::from_bits(mid.to_bits().wrapping_add_signed(ulps)));
            }
        }
        for v in [
            0.0,
            -0.0,
            1e-40,
            -1e9,
            1e9,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ] {
            check(v);
        }
    }
}
