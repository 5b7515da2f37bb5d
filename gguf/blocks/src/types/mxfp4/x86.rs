//! Unpacking of `MXFP4` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    __m256, __m256i, _mm256_and_si256, _mm256_castsi256_ps, _mm256_max_epi32, _mm256_or_si256,
    _mm256_set1_epi32, _mm256_setzero_si256, _mm256_slli_epi32, _mm256_srlv_epi32, _mm256_sub_epi32,
};

use zerocopy::IntoBytes;

use super::MXFP4;
use crate::kernel::x86::{Target, Unpack};
use crate::packing::LIFTED_FP4;
use crate::tile::ROWS;
use crate::x86::{dwords, look_up, store_rows, table16};

impl Unpack for MXFP4 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        let scales = dwords(rows, |b| *b.as_bytes().first_chunk().expect("more bytes"));
        store_rows(&mut out.tile().scale[first][0], half_scales(scales));
        let levels = table16(&LIFTED_FP4);
        out.nibble_group(first, rows, |b| &b.qs, |v| look_up(levels, v));
    }
}

/// [`half_scale`](super::half_scale) of the low byte of each double word.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn half_scales(stored: __m256i) -> __m256 {
    let e = _mm256_and_si256(stored, _mm256_set1_epi32(0xff));
    let below = _mm256_sub_epi32(_mm256_set1_epi32(1), e);
    // A shift by a negative count, which is a large one, leaves nothing.
    let small = _mm256_srlv_epi32(_mm256_set1_epi32(0x0040_0000), below);
    let above = _mm256_max_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), _mm256_setzero_si256());
    _mm256_castsi256_ps(_mm256_or_si256(small, _mm256_slli_epi32::<23>(above)))
}
