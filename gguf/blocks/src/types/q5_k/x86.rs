//! Unpacking of `Q5_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::_mm256_or_si256;

use zerocopy::IntoBytes;

use super::Q5K;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{high_nibbles, low_nibbles, move_bit, set_six_bit};

impl Unpack for Q5K {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        set_six_bit(out, first, rows, |b| {
            b.as_bytes()
                .first_chunk()
                .expect("a block has more than 16 bytes")
        });
        two_groups::<0, DOT>(rows, first, out);
        two_groups::<2, DOT>(rows, first, out);
        two_groups::<4, DOT>(rows, first, out);
        two_groups::<6, DOT>(rows, first, out);
    }
}

/// Groups `GROUP` and the next, whose low four bits lie in the same bytes.
// The place of the fifth bit is known when compiled.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn two_groups<const GROUP: usize, const DOT: bool>(
    rows: [&Q5K; ROWS],
    first: usize,
    out: &mut Target<'_, Q5K, DOT>,
) {
    out.groups(
        first + GROUP,
        rows,
        |b| [&b.qs.as_chunks().0[GROUP / 2], &b.qh],
        |[v, fifth]| {
            [
                _mm256_or_si256(low_nibbles(v), move_bit(fifth, GROUP, 4)),
                _mm256_or_si256(high_nibbles(v), move_bit(fifth, GROUP + 1, 4)),
            ]
        },
    );
}
