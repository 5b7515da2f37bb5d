//! The searches for scales, minima and codes that the encoders share.
//!
//! All arithmetic is f32, each product and sum rounded on its own, sums in the order of the elements. Where a
//! search is repeated for many starting points or many sub-blocks, these run side by side in lanes: each lane
//! still adds in element order, so the results are those of the plain loop.

#![expect(
    clippy::needless_bitwise_bool,
    reason = "conditions of lanes are computed without branches"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "one index goes over all the lanes of a step"
)]

mod affine;
mod descent;
pub(crate) mod lattice;
pub(crate) mod magnitudes;
mod positive;
mod symmetric;
pub(crate) mod ternary;
#[cfg(test)]
mod tests;

pub(crate) use affine::{Affine, Grid, affine_plain, affine_weighted};
pub(crate) use descent::symmetric_descent;
pub(crate) use positive::positive;
pub(crate) use symmetric::symmetric;

/// Sub-blocks that are searched side by side.
pub(crate) const LANES: usize = 8;

/// One number for each sub-block.
pub(crate) type Lane = [f32; LANES];

/// Below this largest magnitude a group counts as zero.
pub(crate) const TINY: f32 = 1e-15;

/// 1.5 · 2^23: adding it rounds to a whole number, which then stands in the low bits.
pub(crate) const ROUNDER: f32 = 12_582_912.0;

/// The nearest whole number, ties to even, for `|v| <= 4194303`; some whole number of that range for any other
/// `v`, the same everywhere.
#[inline(always)]
pub(crate) fn nint(v: f32) -> f32 {
    // For values in range the exponent is that of 2^23 already and the mask changes nothing.
    f32::from_bits((v + ROUNDER).to_bits() & 0x007f_ffff | 0x4b00_0000) - ROUNDER
}

/// `v` limited to `lo..=hi`; `lo` for NaN.
#[inline(always)]
pub(crate) fn clamp(v: f32, lo: f32, hi: f32) -> f32 {
    let v = if v > lo { v } else { lo };
    if v < hi { v } else { hi }
}

/// Truncation to a whole number; what `i32` cannot hold gives its smallest value, as the x86 instruction does.
#[inline(always)]
pub(crate) fn truncate(v: f32) -> i32 {
    if v.abs() < 2_147_483_648.0 {
        v as i32
    } else {
        i32::MIN
    }
}

/// The element of the largest magnitude, the first of them, with its sign; 0 if all are zero.
pub(crate) fn signed_max(x: &[f32]) -> f32 {
    // Magnitudes compare like their bits, and whole numbers can be compared in any order.
    let bits = x.iter().fold(0, |m, v| (v.to_bits() & 0x7fff_ffff).max(m));
    if bits == 0 {
        return 0.0;
    }
    x.iter()
        .copied()
        .find(|v| v.to_bits() & 0x7fff_ffff == bits)
        .unwrap_or(0.0)
}

/// The nearest whole number, ties away from zero; what `i32` cannot hold as in [`truncate`].
#[inline(always)]
pub(crate) fn round_away(v: f32) -> i32 {
    let whole = truncate(v);
    // Exact for the few bits of a code; beyond those there is no fraction left to look at.
    let rest = v - whole as f32;
    whole
        .wrapping_add(i32::from(rest >= 0.5))
        .wrapping_sub(i32::from(rest <= -0.5))
}

/// The smallest and the largest value, each the first of equal ones (which matters for the sign of zero).
pub(crate) fn range(x: &[f32; 32]) -> (f32, f32) {
    let mut min = [f32::MAX; LANES];
    let mut max = [-f32::MAX; LANES];
    for x in x.as_chunks::<LANES>().0 {
        for j in 0..LANES {
            min[j] = if x[j] < min[j] { x[j] } else { min[j] };
            max[j] = if x[j] > max[j] { x[j] } else { max[j] };
        }
    }
    let min = min.into_iter().fold(f32::MAX, |m, v| if v < m { v } else { m });
    let max = max.into_iter().fold(-f32::MAX, |m, v| if v > m { v } else { m });
    let first = |value: f32| if value == 0.0 { first_zero(x) } else { value };
    (first(min), first(max))
}

/// The first of the zeros in `x`, with its sign.
fn first_zero(x: &[f32]) -> f32 {
    x.iter().copied().find(|v| *v == 0.0).unwrap_or(0.0)
}

/// Searches scale, minimum and codes of each group of 32 values of a row with importance, and hands them to
/// `store` with the number of the group.
pub(crate) fn affine_rows(
    groups: &[[f32; 32]],
    importance: &[[f32; 32]],
    grid: &Grid,
    mut store: impl FnMut(usize, f32, f32, &[u8; 32]),
) {
    let row = groups.as_flattened();
    let sigma2 = sum_of_squares(row) / row.len() as f32;
    for first in (0..groups.len()).step_by(LANES) {
        let n = LANES.min(groups.len() - first);
        // Lanes without a group of their own repeat the last one.
        let lane = |j: usize| first + j.min(n - 1);
        let weights: [_; LANES] =
            std::array::from_fn(|j| spread(&groups[lane(j)], &importance[lane(j)], sigma2));
        let x = transpose(std::array::from_fn(|j| &groups[lane(j)]));
        let found = affine_weighted(&x, &transpose(weights.each_ref()), grid);
        for j in 0..n {
            store(first + j, found.scale[j], found.min[j], &found.codes[j]);
        }
    }
}

/// Sub-blocks side by side: `[element][sub-block]`.
pub(crate) fn transpose<const N: usize>(rows: [&[f32; N]; LANES]) -> [Lane; N] {
    let mut out = [[0.0; LANES]; N];
    for (i, lane) in out.iter_mut().enumerate() {
        for (v, row) in lane.iter_mut().zip(rows) {
            *v = row[i];
        }
    }
    out
}

/// Weights of values of an importance: `importance · sqrt(sigma2 + x²)`, so that large values count more.
pub(crate) fn spread<const N: usize>(x: &[f32; N], importance: &[f32; N], sigma2: f32) -> [f32; N] {
    let mut w = *importance;
    for (w, x) in w.iter_mut().zip(x) {
        *w *= (sigma2 + x * x).sqrt();
    }
    w
}

/// The grid of starting scales that every affine encoder with importance uses.
pub(crate) const fn weighted_grid(n_max: f32) -> Grid {
    Grid {
        n_max,
        first: -0.9,
        step: 0.05,
        steps: 36,
    }
}

/// The sum of each lane, added in order.
pub(crate) fn lane_sums<const N: usize>(lanes: &[Lane; N]) -> Lane {
    let mut sums = [0.0; LANES];
    for lane in lanes {
        for j in 0..LANES {
            sums[j] += lane[j];
        }
    }
    sums
}

/// The sum of squares, added in order.
pub(crate) fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |s, v| s + v * v)
}
