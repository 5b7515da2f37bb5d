//! Unpacking of `IQ4_XS` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    _mm256_and_si256, _mm256_or_si256, _mm256_set1_epi8, _mm256_slli_epi32, _mm256_sub_epi8,
};

use super::IQ4XS;
use crate::iq4::LEVELS;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{
    dwords, halves, look_up, low_nibbles, shift_dwords, signed_byte_twice, store_rows, table16,
};

impl Unpack for IQ4XS {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        let low = dwords(rows, |b| b.scales_l);
        let high = dwords(rows, |b| [b.scales_h[0], b.scales_h[1], 0, 0]);
        for g in 0..8 {
            let four = low_nibbles(shift_dwords(low, 4 * g));
            let two =
                _mm256_slli_epi32::<4>(_mm256_and_si256(shift_dwords(high, 2 * g), _mm256_set1_epi8(3)));
            let six = _mm256_sub_epi8(_mm256_or_si256(four, two), _mm256_set1_epi8(32));
            let scale = signed_byte_twice(six, 0);
            out.set_int_scales(first + g, scale, scale);
        }
        store_rows(&mut out.tile().unit, halves(rows, |b| b.d));
        let levels = table16(&LEVELS);
        for g in 0..8 {
            out.nibble_group(first + g, rows, |b| &b.qs[g], |v| look_up(levels, v));
        }
    }
}
