//! Unpacking of `TQ2_0` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{_mm256_and_si256, _mm256_set1_epi8, _mm256_set1_epi16};

use super::TQ2_0;
use crate::kernel::four;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{halves, shift_right, store_rows};

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
            out.groups(
                first + 4 * half,
                rows,
                |b| [&b.qs.as_chunks().0[half]],
                |[v]| four(|quarter| _mm256_and_si256(shift_right(v, 2 * quarter), three)),
            );
        }
    }
}
