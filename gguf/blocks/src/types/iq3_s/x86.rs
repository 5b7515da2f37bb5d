//! Unpacking of `IQ3_S` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_or_si256, _mm256_set1_epi16, _mm256_slli_epi16, _mm256_srli_epi16,
};

use super::IQ3_S;
use crate::codebook::x86::{Room, eights, fours, odd_scales, set_unit, signs};
use crate::grids::IQ3S;
use crate::kernel::x86::{Target, Unpack};
use crate::kernel::{each, each_of};
use crate::tile::ROWS;
use crate::x86::{byte_twice, columns, dwords, eight, pair};

impl Unpack for IQ3_S {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        set_unit(out, rows);
        let scales = odd_scales(dwords(rows, |b| b.scales));
        for g in 0..8 {
            let scale = byte_twice(scales[g % 2], g / 2);
            out.set_signed_scales(first + g, scale, scale);
        }
        let [low_qh, high_qh] = eights(each(rows, |b| &b.qh));
        let qh = each_of(|g| byte_twice([low_qh, high_qh][g / 4], g % 4));
        let bits = |half: usize| columns(rows, |b| &b.signs.as_chunks::<16>().0[half]);
        let negative = eight(bits(0), bits(1));
        let mut room = Room::new();
        let numbers = room.fill(|two| {
            let [a, b, c, d] = columns(rows, |b| {
                let two = &b.qs.as_chunks::<2>().0[two];
                two.as_flattened().first_chunk().expect("16 bytes")
            });
            [numbers([a, b], qh[2 * two]), numbers([c, d], qh[2 * two + 1])]
        });
        for (g, negative) in negative.iter().enumerate() {
            out.signed_group(first + g, |k| {
                let points = |odd: usize| fours(numbers.points(&IQ3S, g, k / 2 * 2 + odd, k % 2));
                [[points(0), points(1)], signs(*negative, k)]
            });
        }
    }
}

/// The numbers of points 0 and 2 and those of 1 and 3 of both halves of a group: the low bits are in the bytes of `low`,
/// and the ninth ones in both 16-bit numbers of `high`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn numbers(low: [__m256i; 2], high: __m256i) -> [__m256i; 4] {
    let high = pair(high, _mm256_srli_epi16::<2>(high));
    let join = |low, high| _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi16(0x100)));
    let even = |low| _mm256_and_si256(low, _mm256_set1_epi16(0xff));
    let odd = |low| _mm256_srli_epi16::<8>(low);
    [
        join(even(low[0]), _mm256_slli_epi16::<8>(high)),
        join(odd(low[0]), _mm256_slli_epi16::<7>(high)),
        join(even(low[1]), _mm256_slli_epi16::<4>(high)),
        join(odd(low[1]), _mm256_slli_epi16::<3>(high)),
    ]
}
