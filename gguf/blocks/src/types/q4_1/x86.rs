//! Unpacking of `Q4_1` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{_mm256_set1_ps, _mm256_xor_ps};

use super::Q4_1;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{halves, store_rows};

impl Unpack for Q4_1 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        store_rows(&mut out.tile().scale[first][0], halves(rows, |b| b.d));
        // The stored minimum is added.
        let min = _mm256_xor_ps(halves(rows, |b| b.m), _mm256_set1_ps(-0.0));
        store_rows(&mut out.tile().min[first], min);
        out.nibble_group(first, rows, |b| &b.qs, |v| v);
    }
}
