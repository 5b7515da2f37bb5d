//! Encoders of the types of 32 values with one scale, and maybe one minimum, for each block: `Q4_0`, `Q4_1`, `Q5_0`
//! and `Q5_1`.

use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::rows::{self, Stored};
use crate::search::{
    affine_weighted, batch, range, signed_max, split, spread, sum_of_squares, symmetric, transpose,
    weighted_grid,
};
use crate::simd::{LANES, Lanes, Simd};

/// A block of `d · (code - N_MAX)`.
pub(crate) trait Signed: Stored {
    /// The number of negative codes, and of the others.
    const N_MAX: f32;

    /// The block of a scale, a half, and codes in `0..2 * N_MAX`. To be `#[inline(always)]`.
    fn pack(d: [u8; 2], codes: &[u8; 32]) -> Self;
}

/// A block of `d · code + m`.
pub(crate) trait WithMinimum: Stored {
    /// The largest code.
    const N_MAX: f32;

    /// The block of a scale and a minimum, halves, and codes in `0..=N_MAX`. To be `#[inline(always)]`.
    fn pack(d: [u8; 2], m: [u8; 2], codes: &[u8; 32]) -> Self;
}

/// Encodes a row.
#[inline(always)]
pub(crate) fn encode_signed<S: Simd, B: Signed>(
    simd: S,
    src: &[f32],
    importance: Importance<'_>,
    out: &mut [u8],
) {
    let n_max = B::N_MAX;
    let (groups, blocks) = rows::pairs::<B, 32>(src, out);
    let Importance::Column(weights) = importance else {
        for (x, block) in groups.iter().zip(blocks) {
            // The scale that gives the value of largest magnitude the code 0, and the codes nearest to it.
            let d = signed_max(x) / -n_max;
            let codes = nearest(simd, x, d, 0.0, n_max + 0.5, 2.0 * n_max - 1.0);
            *block = B::pack(half(d), &codes);
        }
        return;
    };
    let weights = rows::weights::<32>(src, weights);
    let sigma2 = simd.splat(sum_of_squares(src) / src.len() as f32);
    for (i, blocks) in blocks.chunks_mut(LANES).enumerate() {
        let (x, w) = side_by_side(simd, groups, weights, LANES * i, sigma2);
        let (scales, codes) = symmetric(simd, n_max, &x, &w);
        let scales = scales.to_array();
        let mut columns = [[0; LANES]; 32];
        for (columns, codes) in columns
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(codes.as_chunks::<2>().0)
        {
            columns
                .as_flattened_mut()
                .copy_from_slice(&simd.low_bytes(*codes));
        }
        for (j, block) in blocks.iter_mut().enumerate() {
            let mut codes = [0; 32];
            for (code, column) in codes.iter_mut().zip(&columns) {
                *code = column[j];
            }
            *block = B::pack(half(scales[j]), &codes);
        }
    }
}

/// Encodes a row.
#[inline(always)]
pub(crate) fn encode_with_minimum<S: Simd, B: WithMinimum>(
    simd: S,
    src: &[f32],
    importance: Importance<'_>,
    out: &mut [u8],
) {
    let n_max = B::N_MAX;
    let (groups, blocks) = rows::pairs::<B, 32>(src, out);
    let Importance::Column(weights) = importance else {
        for (x, block) in groups.iter().zip(blocks) {
            // The smallest and the largest value get the first and the last code.
            let (min, max) = range(simd, x);
            let d = (max - min) / n_max;
            let codes = nearest(simd, x, d, min, 0.5, n_max);
            *block = B::pack(half(d), half(min), &codes);
        }
        return;
    };
    let weights = rows::weights::<32>(src, weights);
    let sigma2 = simd.splat(sum_of_squares(src) / src.len() as f32);
    let grid = weighted_grid(n_max);
    for (i, blocks) in blocks.chunks_mut(LANES).enumerate() {
        let first = LANES * i;
        let (x, w) = side_by_side(simd, groups, weights, first, sigma2);
        let found = affine_weighted(simd, &x, &w, &grid);
        for (j, block) in blocks.iter_mut().enumerate() {
            let codes = found.codes32(simd, j, &groups[first + j]);
            *block = B::pack(half(found.scale[j]), half(-found.min[j]), &codes);
        }
    }
}

/// The values of the blocks from `first` on, side by side, and their weights.
#[inline(always)]
fn side_by_side<S: Simd>(
    simd: S,
    groups: &[[f32; 32]],
    importance: &[[f32; 32]],
    first: usize,
    sigma2: S::Lanes,
) -> ([S::Lanes; 32], [S::Lanes; 32]) {
    let x = transpose(simd, batch(groups, first));
    let mut w = transpose(simd, batch(importance, first));
    spread::<S, 32>(&x, &mut w, sigma2);
    (x, w)
}

/// A stored half.
#[inline(always)]
fn half(v: f32) -> [u8; 2] {
    f32_to_f16(v).to_le_bytes()
}

/// The codes `(x - min) / d + offset` without their fraction, at most `top`.
#[inline(always)]
fn nearest<S: Simd>(simd: S, x: &[f32; 32], d: f32, min: f32, offset: f32, top: f32) -> [u8; 32] {
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let (min, inverse) = (simd.splat(min), simd.splat(inverse));
    let [a, b] = split(simd, x);
    let offset = simd.splat(offset);
    let mut codes = simd.low_bytes([(a - min) * inverse + offset, (b - min) * inverse + offset]);
    for code in &mut codes {
        // As signed bytes, like the reference.
        *code = (*code as i8).min(top as i8) as u8;
    }
    codes
}
