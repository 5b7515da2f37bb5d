//! Unpacking of `Q4_0` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use super::Q4_0;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{halves, store_rows};

impl Unpack for Q4_0 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        store_rows(&mut out.tile().scale[first][0], halves(rows, |b| b.d));
        out.nibble_group(first, rows, |b| &b.qs, |v| v);
    }
}
