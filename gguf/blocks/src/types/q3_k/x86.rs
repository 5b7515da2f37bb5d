//! AVX2 kernel of `Q3_K`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use std::arch::x86_64::{
    _mm256_and_si256, _mm256_cvtepi32_ps, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi16, _mm256_srli_epi16, _mm256_sub_epi32,
};

use super::Q3K;
use crate::kernel::{blocks, nth};
use crate::tile::{ROWS, Tile};
use crate::x86::{
    byte_bits, columns, dwords, halves, high_nibbles, low_nibbles, move_bit, set_chunk, shift_right,
    store_rows,
};

/// Unpacks at [`crate::Level::Avx2`].
pub(super) fn unpack(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2 and F16C.
    unsafe { unpack_avx2(blocks(rows, first_group, tile.n_groups()), tile) }
}

#[target_feature(enable = "avx2,f16c")]
fn unpack_avx2(rows: [&[Q3K]; ROWS], tile: &mut Tile) {
    // A tile holds one super-block or none.
    if tile.n_groups() == 0 {
        return;
    }
    let blocks = nth(rows, 0);
    let three = _mm256_set1_epi8(3);
    for piece in 0..2 {
        let high = columns(blocks, |b| &b.hmask.as_chunks::<16>().0[piece]);
        for half in 0..2 {
            let low = columns(blocks, |b| &b.qs.as_chunks::<16>().0[2 * half + piece]);
            for chunk in 0..4 {
                for quarter in 0..4 {
                    let group = 4 * half + quarter;
                    let two = _mm256_and_si256(shift_right(low[chunk], 2 * quarter), three);
                    let v = _mm256_or_si256(two, move_bit(high[chunk], group, 2));
                    set_chunk(tile, group, 4 * piece + chunk, v);
                }
            }
        }
    }
    set_scales(blocks, tile);
}

/// The sixteen 6-bit scales.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn set_scales(blocks: [&Q3K; ROWS], tile: &mut Tile) {
    let packed = |i: usize| dwords(blocks, |b| b.scales.as_chunks::<4>().0[i]);
    let (low, mid, high) = (packed(0), packed(1), packed(2));
    let top = _mm256_set1_epi8(0x30);
    let join = |four, two| _mm256_or_si256(four, _mm256_and_si256(two, top));
    let scales = [
        join(low_nibbles(low), _mm256_slli_epi16::<4>(high)),
        join(low_nibbles(mid), _mm256_slli_epi16::<2>(high)),
        join(high_nibbles(low), high),
        join(high_nibbles(mid), _mm256_srli_epi16::<2>(high)),
    ];
    let d = halves(blocks, |b| b.d);
    for k in 0..16 {
        let scale = _mm256_sub_epi32(byte_bits(scales[k / 4], k % 4), _mm256_set1_epi32(32));
        let scale = _mm256_mul_ps(d, _mm256_cvtepi32_ps(scale));
        store_rows(&mut tile.scale[k / 2][k % 2], scale);
        store_rows(
            &mut tile.min[k / 2][k % 2],
            _mm256_mul_ps(scale, _mm256_set1_ps(4.0)),
        );
    }
}
