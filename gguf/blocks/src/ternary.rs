//! What the ternary types have in common: values of -1, 0 and 1 times the largest magnitude of a block.

use crate::half_bulk::f32_to_f16;
use crate::search::{largest_magnitude, round_away, split};
use crate::simd::{Lanes, Simd};

/// The scale, a half, and the codes 0, 1 and 2 of the values -1, 0 and 1.
#[inline(always)]
pub(crate) fn search<S: Simd, const N: usize>(simd: S, x: &[f32; N]) -> ([u8; 2], [u8; N]) {
    let d = largest_magnitude(x);
    let inverse = simd.splat(if d == 0.0 { 0.0 } else { 1.0 / d });
    let one = simd.splat(1.0);
    // Out of range only where `1 / d` overflows, which has no defined result in the reference.
    let mut codes = [0; N];
    for (codes, x) in codes
        .as_chunks_mut::<32>()
        .0
        .iter_mut()
        .zip(x.as_chunks::<32>().0)
    {
        let [a, b] = split(simd, x);
        let (a, b) = (round_away(simd, a * inverse), round_away(simd, b * inverse));
        *codes = simd.low_bytes([a.clamp(one.neg(), one) + one, b.clamp(one.neg(), one) + one]);
    }
    (f32_to_f16(d).to_le_bytes(), codes)
}
