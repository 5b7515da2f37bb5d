//! Unpacking of `IQ4_NL` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use super::IQ4NL;
use crate::iq4::LEVELS;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{halves, look_up, store_rows, table16};

impl Unpack for IQ4NL {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        store_rows(&mut out.tile().scale[first][0], halves(rows, |b| b.d));
        let levels = table16(&LEVELS);
        out.nibble_group(first, rows, |b| &b.qs, |v| look_up(levels, v));
    }
}
