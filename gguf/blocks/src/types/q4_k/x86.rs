//! Unpacking of `Q4_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use zerocopy::IntoBytes;

use super::Q4K;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{high_nibbles, low_nibbles, set_six_bit};

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
            out.groups(
                first + 2 * pair,
                rows,
                |b| [&b.qs.as_chunks().0[pair]],
                |[v]| [low_nibbles(v), high_nibbles(v)],
            );
        }
    }
}
