//! Unpacking of `MXFP4` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use super::{MXFP4, half_scale};
use crate::kernel::each;
use crate::kernel::x86::{Target, Unpack};
use crate::packing::LIFTED_FP4;
use crate::tile::ROWS;
use crate::x86::{columns, look_up, nibbles, table16};

impl Unpack for MXFP4 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        out.tile().scale[first][0] = each(rows, |b| half_scale(b.e));
        let levels = table16(&LIFTED_FP4);
        let v = nibbles(columns(rows, |b| &b.qs));
        out.group(first, each(v, |v| look_up(levels, v)));
    }
}
