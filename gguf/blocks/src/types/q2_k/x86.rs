//! Unpacking of `Q2_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{_mm256_and_si256, _mm256_set1_epi8};

use super::Q2K;
use crate::kernel::four;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{
    byte_twice, columns, dwords, high_halves, high_nibbles, low_halves, low_nibbles, pair, shift_right,
    store_pairs, store_rows,
};

impl Unpack for Q2K {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        let scales = columns(rows, |b| &b.scales);
        for g in 0..8 {
            let (scale, min) = (low_nibbles(scales[g / 2]), high_nibbles(scales[g / 2]));
            let (low, high) = (g % 2 * 2, g % 2 * 2 + 1);
            out.set_int_scales(first + g, byte_twice(scale, low), byte_twice(scale, high));
            store_pairs(
                &mut out.tile().int_min[first + g],
                pair(byte_twice(min, low), byte_twice(min, high)),
            );
        }
        let units = dwords(rows, |b| [b.d[0], b.d[1], b.dmin[0], b.dmin[1]]);
        store_rows(&mut out.tile().unit, low_halves(units));
        store_rows(&mut out.tile().min_unit, high_halves(units));
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
