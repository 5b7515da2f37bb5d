//! Unpacking of `TQ2_0` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{_mm256_and_si256, _mm256_set1_epi8, _mm256_set1_epi16};

use super::TQ2_0;
use crate::kernel::each;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{columns, eight, halves, shift_right, store_rows};

impl Unpack for TQ2_0 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        let one = _mm256_set1_epi16(1);
        for g in 0..8 {
            out.set_int_scales(first + g, one, one);
        }
        store_rows(&mut out.tile().unit, halves(rows, |b| b.d));
        let three = _mm256_set1_epi8(3);
        for half in 0..2 {
            let piece = |i: usize| columns(rows, |b| &b.qs.as_chunks::<16>().0[2 * half + i]);
            let v = eight(piece(0), piece(1));
            for quarter in 0..4 {
                let codes = each(v, |v| _mm256_and_si256(shift_right(v, 2 * quarter), three));
                out.group(first + 4 * half + quarter, codes);
            }
        }
    }
}
