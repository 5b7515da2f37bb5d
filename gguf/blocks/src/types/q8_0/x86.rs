//! Unpacking of `Q8_0` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use zerocopy::IntoBytes;

use super::Q8_0;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{columns, eight, halves, store_rows};

impl Unpack for Q8_0 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        store_rows(&mut out.tile().scale[first][0], halves(rows, |b| b.d));
        let piece = |i: usize| columns(rows, |b| &b.qs.as_bytes().as_chunks::<16>().0[i]);
        out.group(first, eight(piece(0), piece(1)));
    }
}
