//! Unpacking of `TQ1_0` at level AVX2.
//!
//! A byte is a fraction of 256, whose first base-3 digit tells which third of them it lies in, and three times the byte
//! has the next one there. Bytes are lowered by 128, as only signed ones can be compared, which three times 128 leaves
//! as it is.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    __m256i, _mm256_add_epi8, _mm256_cmpgt_epi8, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_sub_epi8,
    _mm256_xor_si256,
};

use super::TQ1_0;
use crate::kernel::each;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{columns, dwords, eight, halves, store_rows};

impl Unpack for TQ1_0 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        store_rows(&mut out.tile().unit, halves(rows, |b| b.d));
        let one = _mm256_set1_epi16(1);
        for g in 0..8 {
            out.set_signed_scales(first + g, one, one);
        }
        // The lowered values, -1 to 1, are the signs of ones.
        let ones = [_mm256_set1_epi8(1); 2];
        let piece = |i: usize| columns(rows, |b| &b.qs.as_chunks::<16>().0[i]);
        let mut v = each(eight(piece(0), piece(1)), |v| lower(v));
        for g in 0..5 {
            out.signed_group(first + g, |k| [ones, [digit(v[2 * k]), digit(v[2 * k + 1])]]);
            v = each(v, |v| next(v));
        }
        let [a, b, c, d] = piece(2);
        // Both halves of a group, of one digit and the next one.
        let mut v = [lower(a), lower(b), lower(c), lower(d)];
        for g in 5..7 {
            let odd = four_next(v);
            let both = eight(v, odd);
            out.signed_group(first + g, |k| {
                [ones, [digit(both[2 * k]), digit(both[2 * k + 1])]]
            });
            v = four_next(odd);
        }
        let first_digits = lower(dwords(rows, |b| b.qh));
        let (second, third) = (next(first_digits), next(next(first_digits)));
        let both = eight(v, [first_digits, second, third, next(third)]);
        out.signed_group(first + 7, |k| {
            [ones, [digit(both[2 * k]), digit(both[2 * k + 1])]]
        });
    }
}

/// Bytes lowered by 128.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn lower(v: __m256i) -> __m256i {
    _mm256_xor_si256(v, _mm256_set1_epi8(i8::MIN))
}

/// The first digits, lowered by one: whether bytes are in the last third, less whether they are in the first.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn digit(v: __m256i) -> __m256i {
    let last = _mm256_cmpgt_epi8(v, lower(_mm256_set1_epi8(170_u8 as i8)));
    let first = _mm256_cmpgt_epi8(lower(_mm256_set1_epi8(86)), v);
    // A comparison gives minus one.
    _mm256_sub_epi8(first, last)
}

/// Bytes with the next digit in front.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn next(v: __m256i) -> __m256i {
    _mm256_add_epi8(v, _mm256_add_epi8(v, v))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four_next([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    [next(a), next(b), next(c), next(d)]
}
