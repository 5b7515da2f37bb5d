//! Unpacking of `Q3_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    _mm256_and_si256, _mm256_or_si256, _mm256_set1_epi8, _mm256_slli_epi16, _mm256_srli_epi16,
    _mm256_sub_epi8,
};

use super::Q3K;
use crate::kernel::each_of;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{
    columns, dwords, eight, halves, high_nibbles, low_nibbles, move_bit, shift_right, signed_byte_twice,
    store_rows,
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
        let piece = |i: usize| columns(rows, |b| &b.hmask.as_chunks::<16>().0[i]);
        let third = eight(piece(0), piece(1));
        let three = _mm256_set1_epi8(3);
        for half in 0..2 {
            let piece = |i: usize| columns(rows, |b| &b.qs.as_chunks::<16>().0[2 * half + i]);
            let v = eight(piece(0), piece(1));
            for quarter in 0..4 {
                let group = 4 * half + quarter;
                let codes = each_of(|i| {
                    let two = _mm256_and_si256(shift_right(v[i], 2 * quarter), three);
                    _mm256_or_si256(two, move_bit(third[i], group, 2))
                });
                out.group(first + group, codes);
            }
        }
    }
}
