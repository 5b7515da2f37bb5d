//! AVX2 kernel of `Q6_K`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_ps,
    _mm256_slli_epi16, _mm256_srli_epi16,
};

use zerocopy::IntoBytes;

use super::Q6K;
use crate::kernel::{blocks, nth};
use crate::tile::{ROWS, Tile};
use crate::x86::{columns, halves, high_nibbles, low_nibbles, set_chunk, signed_byte, store_rows};

/// Unpacks at [`crate::Level::Avx2`].
pub(super) fn unpack(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2 and F16C.
    unsafe { unpack_avx2(blocks(rows, first_group, tile.n_groups()), tile) }
}

#[target_feature(enable = "avx2,f16c")]
fn unpack_avx2(rows: [&[Q6K]; ROWS], tile: &mut Tile) {
    // A tile holds one super-block or none.
    if tile.n_groups() == 0 {
        return;
    }
    let blocks = nth(rows, 0);
    for piece in 0..4 {
        let (half, first_chunk) = (piece / 2, 4 * (piece % 2));
        let low = |i: usize| columns(blocks, |b| &b.ql.as_chunks::<16>().0[4 * half + i + piece % 2]);
        let (even, odd) = (low(0), low(2));
        let high = columns(blocks, |b| &b.qh.as_chunks::<16>().0[piece]);
        for chunk in 0..4 {
            let (even, odd, high) = (even[chunk], odd[chunk], high[chunk]);
            let quarters = [
                join(low_nibbles(even), _mm256_slli_epi16::<4>(high)),
                join(low_nibbles(odd), _mm256_slli_epi16::<2>(high)),
                join(high_nibbles(even), high),
                join(high_nibbles(odd), _mm256_srli_epi16::<2>(high)),
            ];
            for (quarter, v) in quarters.into_iter().enumerate() {
                set_chunk(tile, 4 * half + quarter, first_chunk + chunk, v);
            }
        }
    }
    let d = halves(blocks, |b| b.d);
    for (i, v) in columns(blocks, |b| b.scales.as_bytes().first_chunk().expect("16 scales"))
        .into_iter()
        .enumerate()
    {
        for k in 0..4 {
            let (group, half) = (2 * i + k / 2, k % 2);
            let scale = _mm256_mul_ps(d, signed_byte(v, k));
            store_rows(&mut tile.scale[group][half], scale);
            store_rows(
                &mut tile.min[group][half],
                _mm256_mul_ps(scale, _mm256_set1_ps(32.0)),
            );
        }
    }
}

/// Four low bits and the two at bits 4 and 5 of `two`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn join(four: __m256i, two: __m256i) -> __m256i {
    _mm256_or_si256(four, _mm256_and_si256(two, _mm256_set1_epi8(0x30)))
}
