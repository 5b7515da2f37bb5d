//! Unpacking of `IQ2_S` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_or_si256, _mm256_set1_epi16, _mm256_slli_epi16, _mm256_srli_epi16,
};

use zerocopy::IntoBytes;

use super::IQ2_S;
use crate::codebook::x86::{Room, eights, set_half_scales, set_unit, signs};
use crate::grids::IQ2S;
use crate::kernel::each_of;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{byte_twice, columns, eight, pair};

impl Unpack for IQ2_S {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        set_unit(out, rows);
        let [low_qh, high_qh, low, high] = columns(rows, |b| b.as_bytes().last_chunk().expect("more bytes"));
        set_half_scales(out, first, low);
        set_half_scales(out, first + 4, high);
        let qs = |half: usize| columns(rows, |b| &b.qs.as_chunks::<16>().0[half]);
        let bits = |half: usize| columns(rows, |b| &b.signs.as_chunks::<16>().0[half]);
        let (qs, negative) = (eight(qs(0), qs(1)), eight(bits(0), bits(1)));
        let qh = each_of(|g| byte_twice([low_qh, high_qh][g / 4], g % 4));
        let mut room = Room::new();
        let numbers = room.fill(|two| {
            let group = |g: usize| numbers(qs[g], qh[g]);
            [group(2 * two), group(2 * two + 1)]
        });
        for (g, negative) in negative.iter().enumerate() {
            out.signed_group(first + g, |k| {
                let points = numbers.points(&IQ2S, g, k % 2, k / 2);
                [eights(points), signs(*negative, k)]
            });
        }
    }
}

/// The numbers of points 0 and 2 of a group and those of 1 and 3: the low bits are in the bytes of `low`, and the high
/// ones, two of each, in both 16-bit numbers of `high`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn numbers(low: __m256i, high: __m256i) -> [__m256i; 2] {
    let high = pair(high, _mm256_srli_epi16::<4>(high));
    let join = |low, high| _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi16(0x300)));
    let even = _mm256_and_si256(low, _mm256_set1_epi16(0xff));
    let odd = _mm256_srli_epi16::<8>(low);
    [
        join(even, _mm256_slli_epi16::<8>(high)),
        join(odd, _mm256_slli_epi16::<6>(high)),
    ]
}
