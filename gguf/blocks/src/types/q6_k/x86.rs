//! Unpacking of `Q6_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_or_si256, _mm256_set1_epi8, _mm256_slli_epi16, _mm256_srli_epi16,
};

use zerocopy::IntoBytes;

use super::Q6K;
use crate::kernel::four;
use crate::kernel::x86::{Part, Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{columns, halves, high_nibbles, low_nibbles, signed_byte_twice, store_rows};

impl Unpack for Q6K {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        let scales = columns(rows, |b| b.scales.as_bytes().first_chunk().expect("16 scales"));
        for g in 0..8 {
            let scale = |half| signed_byte_twice(scales[g / 2], g % 2 * 2 + half);
            out.set_int_scales(first + g, scale(0), scale(1));
        }
        store_rows(&mut out.tile().unit, halves(rows, |b| b.d));
        four_groups::<0, DOT>(rows, first, out);
        four_groups::<1, DOT>(rows, first + 4, out);
    }
}

/// The four groups of half `HALF` of the block, of which 16 bytes hold parts of two or all.
// Everything is known when compiled, so that nothing is left of the partial sums but registers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four_groups<const HALF: usize, const DOT: bool>(
    rows: [&Q6K; ROWS],
    first: usize,
    out: &mut Target<'_, Q6K, DOT>,
) {
    let part = four_halves::<HALF, 0, DOT>(rows, first, out, [Part::none(); 4]);
    let part = four_halves::<HALF, 1, DOT>(rows, first, out, part);
    out.end(first, part[0]);
    out.end(first + 1, part[1]);
    out.end(first + 2, part[2]);
    out.end(first + 3, part[3]);
}

/// Half `OF_GROUP` of each of these groups.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four_halves<const HALF: usize, const OF_GROUP: usize, const DOT: bool>(
    rows: [&Q6K; ROWS],
    first: usize,
    out: &mut Target<'_, Q6K, DOT>,
    part: [Part; 4],
) -> [Part; 4] {
    let even = columns(rows, |b| &b.ql.as_chunks::<16>().0[4 * HALF + OF_GROUP]);
    let odd = columns(rows, |b| &b.ql.as_chunks::<16>().0[4 * HALF + 2 + OF_GROUP]);
    let high = columns(rows, |b| &b.qh.as_chunks::<16>().0[2 * HALF + OF_GROUP]);
    let v = four(|i| join(low_nibbles(even[i]), _mm256_slli_epi16::<4>(high[i])));
    let a = out.half(first, OF_GROUP, v, part[0]);
    let v = four(|i| join(low_nibbles(odd[i]), _mm256_slli_epi16::<2>(high[i])));
    let b = out.half(first + 1, OF_GROUP, v, part[1]);
    let v = four(|i| join(high_nibbles(even[i]), high[i]));
    let c = out.half(first + 2, OF_GROUP, v, part[2]);
    let v = four(|i| join(high_nibbles(odd[i]), _mm256_srli_epi16::<2>(high[i])));
    let d = out.half(first + 3, OF_GROUP, v, part[3]);
    [a, b, c, d]
}

/// Four low bits and the two at bits 4 and 5 of `two`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn join(four: __m256i, two: __m256i) -> __m256i {
    _mm256_or_si256(four, _mm256_and_si256(two, _mm256_set1_epi8(0x30)))
}
