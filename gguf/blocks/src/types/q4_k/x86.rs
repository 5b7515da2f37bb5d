//! Unpacking of `Q4_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use zerocopy::IntoBytes;

use super::Q4K;
use crate::kernel::each;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{columns, eight, high_nibbles, low_nibbles, set_six_bit};

impl Unpack for Q4K {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        set_six_bit(out, first, rows, |b| {
            b.as_bytes()
                .first_chunk()
                .expect("a block has more than 16 bytes")
        });
        for pair in 0..4 {
            let piece = |i: usize| columns(rows, |b| &b.qs.as_chunks::<16>().0[2 * pair + i]);
            let v = eight(piece(0), piece(1));
            out.group(first + 2 * pair, each(v, |v| low_nibbles(v)));
            out.group(first + 2 * pair + 1, each(v, |v| high_nibbles(v)));
        }
    }
}
