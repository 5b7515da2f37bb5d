//! Unpacking of `NVFP4` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    __m256, __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_blendv_ps, _mm256_castsi256_ps,
    _mm256_cmpeq_epi32, _mm256_cmpgt_epi32, _mm256_cvtepi32_ps, _mm256_mul_ps, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32,
};

use super::NVFP4;
use crate::kernel::each;
use crate::kernel::x86::{Target, Unpack};
use crate::packing::LIFTED_FP4;
use crate::tile::ROWS;
use crate::x86::{
    columns, dwords, eight, high_nibbles, look_up, low_nibbles, shift_dwords, store_rows, table16,
};

impl Unpack for NVFP4 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        let d = dwords(rows, |b| b.d);
        let levels = table16(&LIFTED_FP4);
        for g in 0..2 {
            for half in 0..2 {
                let scale = half_scales(shift_dwords(d, 8 * (2 * g + half)));
                store_rows(&mut out.tile().scale[first + g][half], scale);
            }
            let [a, b, c, d] = columns(rows, |b| {
                b.qs[2 * g..][..2].as_flattened().first_chunk().expect("16 bytes")
            });
            let low = |v: [__m256i; 2]| {
                [
                    low_nibbles(v[0]),
                    low_nibbles(v[1]),
                    high_nibbles(v[0]),
                    high_nibbles(v[1]),
                ]
            };
            let v = eight(low([a, b]), low([c, d]));
            out.group(first + g, each(v, |v| look_up(levels, v)));
        }
    }
}

/// Half the scale in the low byte of each double word.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn half_scales(stored: __m256i) -> __m256 {
    let stored = _mm256_and_si256(stored, _mm256_set1_epi32(0x7f));
    // The exponent is biased by 7 there and by 127 here, and half of it is wanted.
    let normal = _mm256_add_epi32(_mm256_slli_epi32::<20>(stored), _mm256_set1_epi32(119 << 23));
    let small = _mm256_mul_ps(_mm256_cvtepi32_ps(stored), _mm256_set1_ps(1.0 / 1024.0));
    let is_small = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(8), stored));
    let is_nan = _mm256_castsi256_ps(_mm256_cmpeq_epi32(stored, _mm256_set1_epi32(0x7f)));
    let scale = _mm256_blendv_ps(_mm256_castsi256_ps(normal), small, is_small);
    _mm256_blendv_ps(scale, _mm256_setzero_ps(), is_nan)
}
