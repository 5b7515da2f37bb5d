//! The searches for scales, minima and codes that the encoders share.
//!
//! All arithmetic is f32, each product and sum rounded on its own, sums in the order of the elements. Where a
//! search is repeated for many starting points or many sub-blocks, these run side by side in lanes: each lane
//! still adds in element order, so the results are those of the plain loop.

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
pub(crate) use symmetric::{symmetric, symmetric_one};

use crate::Importance;
use crate::rows::{self, Stored};
use crate::simd::{LANES, Lanes, Simd};

/// Below this largest magnitude a group counts as zero.
pub(crate) const TINY: f32 = 1e-15;

/// The largest magnitude that [`nint`] rounds.
pub(crate) const EXACT: f32 = 4_194_303.0;

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

/// The code of the odd number `2 · code + 1` that is nearest to `v`, at most `most`.
#[inline(always)]
pub(crate) fn odd_code(v: f32, most: f32) -> f32 {
    clamp(nint(0.5 * (v - 1.0)), 0.0, most)
}

/// The largest of numbers; 0 if none is positive.
#[inline(always)]
pub(crate) fn positive_max(numbers: impl IntoIterator<Item = f32>) -> f32 {
    numbers.into_iter().fold(0.0, |m, v| if v > m { v } else { m })
}

/// The element of the largest magnitude, the first of them, with its sign; 0 if all are zero.
#[inline(always)]
pub(crate) fn signed_max<const N: usize>(x: &[f32; N]) -> f32 {
    // Magnitudes compare like their bits: as signed numbers the largest is not negative, as unsigned ones any
    // negative is larger than that.
    let (mut positive, mut negative) = (0, 0);
    for v in x {
        positive = (v.to_bits() as i32).max(positive);
        negative = v.to_bits().max(negative);
    }
    let (positive, magnitude) = (positive as u32, negative & 0x7fff_ffff);
    if positive > magnitude || negative >> 31 == 0 {
        f32::from_bits(positive)
    } else if positive < magnitude {
        f32::from_bits(negative)
    } else if magnitude == 0 {
        0.0
    } else {
        let first = x.iter().copied().find(|v| v.to_bits() & 0x7fff_ffff == magnitude);
        first.unwrap_or(0.0)
    }
}

/// The largest magnitude.
#[inline(always)]
pub(crate) fn largest_magnitude<const N: usize>(x: &[f32; N]) -> f32 {
    // Magnitudes compare like their bits, and whole numbers can be compared in any order.
    f32::from_bits(x.iter().fold(0, |m, v| (v.to_bits() & 0x7fff_ffff).max(m)))
}

/// [`signed_max`] of each lane.
#[inline(always)]
pub(crate) fn largest<S: Simd, const N: usize>(simd: S, x: &[S::Lanes; N]) -> S::Lanes {
    let mut max = simd.splat(0.0);
    for x in x {
        max = S::Lanes::select(x.abs().gt(max.abs()), *x, max);
    }
    max
}

/// The nearest whole numbers, ties away from zero; what is infinite or NaN stays.
#[inline(always)]
pub(crate) fn round_away<S: Simd>(simd: S, v: S::Lanes) -> S::Lanes {
    let (half, one) = (simd.splat(0.5), simd.splat(1.0));
    let whole = v.trunc();
    // Exact for the few bits of a code; beyond those there is no fraction left to look at.
    let rest = v - whole;
    let up = S::Lanes::select(rest.ge(half), whole + one, whole);
    S::Lanes::select(half.neg().ge(rest), whole - one, up)
}

/// The smallest and the largest value, each the first of equal ones (which matters for the sign of zero).
#[inline(always)]
pub(crate) fn range<S: Simd>(simd: S, x: &[f32; 32]) -> (f32, f32) {
    let [a, b] = split(simd, x);
    // What is not a number is passed over.
    let min = a.min(simd.splat(f32::MAX));
    let max = a.max(simd.splat(-f32::MAX));
    let (mut min, mut max) = (b.min(min).to_array(), b.max(max).to_array());
    for half in [8, 4, 2, 1] {
        for j in 0..half {
            min[j] = if min[j + half] < min[j] {
                min[j + half]
            } else {
                min[j]
            };
            max[j] = if max[j + half] > max[j] {
                max[j + half]
            } else {
                max[j]
            };
        }
    }
    let first_zero = || x.iter().copied().find(|v| *v == 0.0).unwrap_or(0.0);
    let first = |value: f32| if value == 0.0 { first_zero() } else { value };
    (first(min[0]), first(max[0]))
}

/// Values in order.
#[inline(always)]
pub(crate) fn split<S: Simd>(simd: S, x: &[f32; 32]) -> [S::Lanes; 2] {
    let x = x.as_chunks::<LANES>().0;
    [simd.load(&x[0]), simd.load(&x[1])]
}

/// The elements from `first` on, one for each lane; lanes without one of their own repeat the last.
#[inline(always)]
pub(crate) fn batch<T>(all: &[T], first: usize) -> [&T; LANES] {
    let mut out = [&all[first]; LANES];
    for (j, out) in out.iter_mut().enumerate() {
        *out = &all[(first + j).min(all.len() - 1)];
    }
    out
}

/// Groups side by side: element `i` of each in element `i` of the result.
#[inline(always)]
pub(crate) fn transpose<S: Simd, const N: usize>(simd: S, rows: [&[f32; N]; LANES]) -> [S::Lanes; N] {
    const { assert!(N.is_multiple_of(8)) };
    let mut out = [simd.splat(0.0); N];
    for (c, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mut piece = [&[0.0; 8]; LANES];
        for (piece, row) in piece.iter_mut().zip(rows) {
            *piece = &row.as_chunks::<8>().0[c];
        }
        *out = simd.transpose(piece);
    }
    out
}

/// Turns the importance of values into their weights: `importance · sqrt(sigma2 + x²)`, so that large values count
/// more.
#[inline(always)]
pub(crate) fn spread<S: Simd, const N: usize>(
    x: &[S::Lanes; N],
    importance: &mut [S::Lanes; N],
    sigma2: S::Lanes,
) {
    for i in 0..N {
        importance[i] = importance[i] * (sigma2 + x[i] * x[i]).sqrt();
    }
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
#[inline(always)]
pub(crate) fn lane_sums<S: Simd, const N: usize>(simd: S, lanes: &[S::Lanes; N]) -> S::Lanes {
    let mut sums = simd.splat(0.0);
    for lane in lanes {
        sums = sums + *lane;
    }
    sums
}

/// The sum of squares, added in order.
#[inline(always)]
pub(crate) fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |s, v| s + v * v)
}

/// Two sums of squares, each added in order. Side by side they take the time of one.
#[inline(always)]
pub(crate) fn sums_of_squares(a: &[f32; 256], b: &[f32; 256]) -> [f32; 2] {
    let mut sums = [0.0; 2];
    for (a, b) in a.iter().zip(b) {
        sums[0] += a * a;
        sums[1] += b * b;
    }
    sums
}

/// A block of 256 values that is encoded by itself.
pub(crate) trait SuperBlock: Stored {
    /// Encodes the values `x`; with importance, that and the sum of the squares of the values. To be
    /// `#[inline(always)]`.
    fn search<S: Simd>(simd: S, x: &[f32; 256], importance: Option<(&[f32; 256], f32)>) -> Self;
}

/// Encodes the super-blocks of a row one by one.
#[inline(always)]
pub(crate) fn super_blocks<S: Simd, B: SuperBlock>(
    simd: S,
    src: &[f32],
    importance: Importance<'_>,
    out: &mut [u8],
) {
    let (groups, blocks) = rows::pairs::<B, 256>(src, out);
    match importance {
        Importance::None => {
            for (x, block) in groups.iter().zip(blocks) {
                *block = B::search(simd, x, None);
            }
        }
        Importance::Column(weights) => {
            let weights = rows::weights::<256>(src, weights);
            let mut pair = [0.0; 2];
            for (i, block) in blocks.iter_mut().enumerate() {
                if i % 2 == 0 {
                    pair = sums_of_squares(&groups[i], &groups[(i + 1).min(groups.len() - 1)]);
                }
                *block = B::search(simd, &groups[i], Some((&weights[i], pair[i % 2])));
            }
        }
    }
}

/// The 16 sub-blocks of a super-block side by side.
#[inline(always)]
pub(crate) fn sixteenths<S: Simd>(simd: S, x: &[f32; 256]) -> [S::Lanes; 16] {
    transpose(simd, batch(x.as_chunks::<16>().0, 0))
}

/// The codes of a super-block for the scales of its sub-blocks as they will be read: `code - n_max` times the scale is
/// nearest. Where a scale is 0, the codes that a search `found`, which are side by side.
#[inline(always)]
pub(crate) fn recode<S: Simd>(
    simd: S,
    n_max: f32,
    x: &[f32; 256],
    scales: &[f32; 16],
    found: &[S::Lanes; 16],
) -> [u8; 256] {
    let (lo, hi) = (simd.splat(-n_max), simd.splat(n_max - 1.0));
    let subs = x.as_chunks::<16>().0;
    let mut codes = [0; 256];
    for (pair, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let mut both = [lo; 2];
        for (k, v) in both.iter_mut().enumerate() {
            let k = 2 * pair + k;
            *v = if scales[k] == 0.0 {
                let mut lane = [0.0; LANES];
                for (v, found) in lane.iter_mut().zip(found) {
                    *v = found.to_array()[k];
                }
                simd.load(&lane)
            } else {
                (simd.load(&subs[k]) / simd.splat(scales[k])).nint().clamp(lo, hi) - lo
            };
        }
        *codes = simd.low_bytes(both);
    }
    codes
}
