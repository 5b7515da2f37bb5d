//! Unpacking of `Q5_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::_mm256_or_si256;

use zerocopy::IntoBytes;

use super::Q5K;
use crate::kernel::each_of;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{columns, eight, high_nibbles, low_nibbles, move_bit, set_six_bit};

impl Unpack for Q5K {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        set_six_bit(out, first, rows, |b| {
            b.as_bytes()
                .first_chunk()
                .expect("a block has more than 16 bytes")
        });
        let piece = |i: usize| columns(rows, |b| &b.qh.as_chunks::<16>().0[i]);
        let fifth = eight(piece(0), piece(1));
        for pair in 0..4 {
            let piece = |i: usize| columns(rows, |b| &b.qs.as_chunks::<16>().0[2 * pair + i]);
            let v = eight(piece(0), piece(1));
            let group = 2 * pair;
            out.group(
                first + group,
                each_of(|i| _mm256_or_si256(low_nibbles(v[i]), move_bit(fifth[i], group, 4))),
            );
            out.group(
                first + group + 1,
                each_of(|i| _mm256_or_si256(high_nibbles(v[i]), move_bit(fifth[i], group + 1, 4))),
            );
        }
    }
}
