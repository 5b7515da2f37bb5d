//! Unpacking of `IQ2_XS` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_or_si256, _mm256_set1_epi16, _mm256_setzero_si256, _mm256_srli_epi16,
};

use zerocopy::IntoBytes;

use super::IQ2_XS;
use crate::codebook::x86::{Room, eights, even, set_half_scales, set_unit, signs};
use crate::grids::IQ2XS;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::columns;

impl Unpack for IQ2_XS {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        set_unit(out, rows);
        let [_, _, low, high] = columns(rows, |b| b.as_bytes().last_chunk().expect("more bytes"));
        set_half_scales(out, first, low);
        set_half_scales(out, first + 4, high);
        let mut negative = [_mm256_setzero_si256(); 8];
        let mut room = Room::new();
        let numbers = room.fill(|two| {
            let [a, b, c, d] = columns(rows, |b| {
                let eight = &b.qs.as_chunks::<8>().0[two];
                eight.as_flattened().first_chunk().expect("16 bytes")
            });
            negative[2 * two] = even(high_sevens([a, b]));
            negative[2 * two + 1] = even(high_sevens([c, d]));
            [[a, b], [c, d]]
        });
        for (g, negative) in negative.iter().enumerate() {
            out.signed_group(first + g, |k| {
                let points = numbers.points(&IQ2XS, g, k / 2, k % 2);
                // Bytes of the signs: points 0, 2, 1 and 3.
                [eights(points), signs(*negative, k % 2 * 2 + k / 2)]
            });
        }
    }
}

/// The high seven bits of the 16-bit numbers: those of the first register in the even bytes, those of the second in the
/// odd ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn high_sevens([first, second]: [__m256i; 2]) -> __m256i {
    let odd = _mm256_and_si256(_mm256_srli_epi16::<1>(second), _mm256_set1_epi16(0x7f00));
    _mm256_or_si256(_mm256_srli_epi16::<9>(first), odd)
}
