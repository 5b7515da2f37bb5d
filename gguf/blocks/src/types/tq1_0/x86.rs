//! Unpacking of `TQ1_0` at level AVX2: as everywhere, then by tile.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use super::TQ1_0;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;

impl Unpack for TQ1_0 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        out.portable(rows, first);
    }
}
