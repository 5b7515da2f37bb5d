//! Unpacking of `Q6_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_or_si256, _mm256_set1_epi8, _mm256_slli_epi16, _mm256_srli_epi16,
};

use zerocopy::IntoBytes;

use super::Q6K;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{columns, halves, high_nibbles, low_nibbles, signed_byte_twice, store_rows};

impl Unpack for Q6K {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        let scales = columns(rows, |b| b.scales.as_bytes().first_chunk().expect("16 scales"));
        if !DOT {
            for g in 0..8 {
                let scale = |half| signed_byte_twice(scales[g / 2], g % 2 * 2 + half);
                out.set_int_scales(first + g, scale(0), scale(1));
            }
        }
        store_rows(&mut out.tile().unit, halves(rows, |b| b.d));
        for half in 0..2 {
            let values = |[even, odd, high]: [__m256i; 3]| {
                [
                    join(low_nibbles(even), _mm256_slli_epi16::<4>(high)),
                    join(low_nibbles(odd), _mm256_slli_epi16::<2>(high)),
                    join(high_nibbles(even), high),
                    join(high_nibbles(odd), _mm256_srli_epi16::<2>(high)),
                ]
            };
            out.four_groups(
                first + 4 * half,
                rows,
                |b| {
                    let ql = b.ql.as_chunks().0;
                    [&ql[2 * half], &ql[2 * half + 1], &b.qh.as_chunks().0[half]]
                },
                values,
                |b| &b.scales.as_bytes().as_chunks().0[half],
            );
        }
    }
}

/// Four low bits and the two at bits 4 and 5 of `two`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn join(four: __m256i, two: __m256i) -> __m256i {
    _mm256_or_si256(four, _mm256_and_si256(two, _mm256_set1_epi8(0x30)))
}
