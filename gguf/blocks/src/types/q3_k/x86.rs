//! Unpacking of `Q3_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    _mm256_and_si256, _mm256_or_si256, _mm256_set1_epi8, _mm256_slli_epi16, _mm256_srli_epi16,
    _mm256_sub_epi8,
};

use super::Q3K;
use crate::kernel::four;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{
    dwords, halves, high_nibbles, low_nibbles, move_bit, shift_right, signed_byte_twice, store_rows,
};

impl Unpack for Q3K {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        let packed = |i: usize| dwords(rows, |b| b.scales.as_chunks::<4>().0[i]);
        let (low, mid, high) = (packed(0), packed(1), packed(2));
        let top = _mm256_set1_epi8(0x30);
        let join = |four, two| {
            let six = _mm256_or_si256(four, _mm256_and_si256(two, top));
            _mm256_sub_epi8(six, _mm256_set1_epi8(32))
        };
        let scales = [
            join(low_nibbles(low), _mm256_slli_epi16::<4>(high)),
            join(low_nibbles(mid), _mm256_slli_epi16::<2>(high)),
            join(high_nibbles(low), high),
            join(high_nibbles(mid), _mm256_srli_epi16::<2>(high)),
        ];
        for g in 0..8 {
            let scale = |half| signed_byte_twice(scales[g / 2], g % 2 * 2 + half);
            out.set_int_scales(first + g, scale(0), scale(1));
        }
        store_rows(&mut out.tile().unit, halves(rows, |b| b.d));
        four_groups::<0, DOT>(rows, first, out);
        four_groups::<1, DOT>(rows, first, out);
    }
}

/// The four groups of half `HALF` of the block, whose low two bits lie in the same bytes.
// The places of the third bits are known when compiled.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four_groups<const HALF: usize, const DOT: bool>(
    rows: [&Q3K; ROWS],
    first: usize,
    out: &mut Target<'_, Q3K, DOT>,
) {
    out.groups(
        first + 4 * HALF,
        rows,
        |b| [&b.qs.as_chunks().0[HALF], &b.hmask],
        |[v, third]| {
            four(|quarter| {
                let two = _mm256_and_si256(shift_right(v, 2 * quarter), _mm256_set1_epi8(3));
                _mm256_or_si256(two, move_bit(third, 4 * HALF + quarter, 2))
            })
        },
    );
}
