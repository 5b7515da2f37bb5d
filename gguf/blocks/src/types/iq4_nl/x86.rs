//! Unpacking of `IQ4_NL` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use super::IQ4NL;
use crate::iq4::LEVELS;
use crate::kernel::each;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{columns, halves, look_up, nibbles, store_rows, table16};

impl Unpack for IQ4NL {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        store_rows(&mut out.tile().scale[first][0], halves(rows, |b| b.d));
        let levels = table16(&LEVELS);
        let v = nibbles(columns(rows, |b| &b.qs));
        out.group(first, each(v, |v| look_up(levels, v)));
    }
}
