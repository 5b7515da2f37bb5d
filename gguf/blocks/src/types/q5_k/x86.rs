//! Unpacking of `Q5_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{__m256i, _mm256_or_si256};

use zerocopy::IntoBytes;

use super::Q5K;
use crate::kernel::four;
use crate::kernel::x86::{Part, Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{columns, high_nibbles, low_nibbles, move_bit, set_six_bit};

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
        let fifth = [piece(0), piece(1)];
        two_groups::<0, DOT>(rows, first, fifth, out);
        two_groups::<2, DOT>(rows, first, fifth, out);
        two_groups::<4, DOT>(rows, first, fifth, out);
        two_groups::<6, DOT>(rows, first, fifth, out);
    }
}

/// Groups `GROUP` and the next, whose low four bits lie in the same bytes; `fifth` are the halves of all fifth bits.
// Everything is known when compiled, so that nothing is left of the partial sums but registers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn two_groups<const GROUP: usize, const DOT: bool>(
    rows: [&Q5K; ROWS],
    first: usize,
    fifth: [[__m256i; 4]; 2],
    out: &mut Target<'_, Q5K, DOT>,
) {
    let low = |v: [__m256i; 4], fifth: [__m256i; 4]| {
        four(|i| _mm256_or_si256(low_nibbles(v[i]), move_bit(fifth[i], GROUP, 4)))
    };
    let high = |v: [__m256i; 4], fifth: [__m256i; 4]| {
        four(|i| _mm256_or_si256(high_nibbles(v[i]), move_bit(fifth[i], GROUP + 1, 4)))
    };
    let v = columns(rows, |b| &b.qs.as_chunks::<16>().0[GROUP]);
    let a = out.half(first + GROUP, 0, low(v, fifth[0]), Part::none());
    let b = out.half(first + GROUP + 1, 0, high(v, fifth[0]), Part::none());
    let v = columns(rows, |b| &b.qs.as_chunks::<16>().0[GROUP + 1]);
    let a = out.half(first + GROUP, 1, low(v, fifth[1]), a);
    let b = out.half(first + GROUP + 1, 1, high(v, fifth[1]), b);
    out.end(first + GROUP, a);
    out.end(first + GROUP + 1, b);
}
