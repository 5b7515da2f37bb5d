//! Unpacking of `Q3_K` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_or_si256, _mm256_set1_epi8, _mm256_slli_epi16, _mm256_srli_epi16,
    _mm256_sub_epi8,
};

use super::Q3K;
use crate::kernel::four;
use crate::kernel::x86::{Part, Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{
    columns, dwords, halves, high_nibbles, low_nibbles, move_bit, shift_right, signed_byte_twice, store_rows,
};

impl Unpack for Q3K {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        let packed = |i: usize| dwords(rows, |b| b.scales.as_chunks::<4>().0[i]);
        let (low, mid, high) = (packed(0), packed(1), packed(2));
        let top = _mm256_set1_epi8(0x30);
        let join = |four, two| {
            let six = _mm256_or_si256(four, _mm256_and_si256(two, top));
            _mm256_sub_epi8(six, _mm256_set1_epi8(32))
        };
        let scales = [
            join(low_nibbles(low), _mm256_slli_epi16::<4>(high)),
            join(low_nibbles(mid), _mm256_slli_epi16::<2>(high)),
            join(high_nibbles(low), high),
            join(high_nibbles(mid), _mm256_srli_epi16::<2>(high)),
        ];
        for g in 0..8 {
            let scale = |half| signed_byte_twice(scales[g / 2], g % 2 * 2 + half);
            out.set_int_scales(first + g, scale(0), scale(1));
        }
        store_rows(&mut out.tile().unit, halves(rows, |b| b.d));
        let piece = |i: usize| columns(rows, |b| &b.hmask.as_chunks::<16>().0[i]);
        let third = [piece(0), piece(1)];
        four_groups::<0, DOT>(rows, first, third, out);
        four_groups::<1, DOT>(rows, first, third, out);
    }
}

/// The four groups of half `HALF` of the block, whose low two bits lie in the same bytes; `third` are the halves of all
/// third bits.
// Everything is known when compiled, so that nothing is left of the partial sums but registers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four_groups<const HALF: usize, const DOT: bool>(
    rows: [&Q3K; ROWS],
    first: usize,
    third: [[__m256i; 4]; 2],
    out: &mut Target<'_, Q3K, DOT>,
) {
    let part = four_halves::<HALF, 0, DOT>(rows, first, third[0], out, [Part::none(); 4]);
    let part = four_halves::<HALF, 1, DOT>(rows, first, third[1], out, part);
    let first = first + 4 * HALF;
    out.end(first, part[0]);
    out.end(first + 1, part[1]);
    out.end(first + 2, part[2]);
    out.end(first + 3, part[3]);
}

/// Half `OF_GROUP` of each of these groups.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four_halves<const HALF: usize, const OF_GROUP: usize, const DOT: bool>(
    rows: [&Q3K; ROWS],
    first: usize,
    third: [__m256i; 4],
    out: &mut Target<'_, Q3K, DOT>,
    part: [Part; 4],
) -> [Part; 4] {
    let v = columns(rows, |b| &b.qs.as_chunks::<16>().0[2 * HALF + OF_GROUP]);
    let mut codes = |quarter: usize, part| {
        let group = 4 * HALF + quarter;
        let v = four(|i| {
            let two = _mm256_and_si256(shift_right(v[i], 2 * quarter), _mm256_set1_epi8(3));
            _mm256_or_si256(two, move_bit(third[i], group, 2))
        });
        out.half(first + group, OF_GROUP, v, part)
    };
    [
        codes(0, part[0]),
        codes(1, part[1]),
        codes(2, part[2]),
        codes(3, part[3]),
    ]
}
