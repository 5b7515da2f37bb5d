//! AVX2 kernel of `Q2_K`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use std::arch::x86_64::{
    _mm256_and_si256, _mm256_cvtepi32_ps, _mm256_mul_ps, _mm256_set1_epi8, _mm256_set1_epi32,
    _mm256_srli_epi32,
};

use super::Q2K;
use crate::kernel::{blocks, nth};
use crate::tile::{ROWS, Tile};
use crate::x86::{byte_bits, columns, dwords, high_halves, low_halves, set_chunk, shift_right, store_rows};

/// Unpacks at [`crate::Level::Avx2`].
pub(super) fn unpack(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2 and F16C.
    unsafe { unpack_avx2(blocks(rows, first_group, tile.n_groups()), tile) }
}

#[target_feature(enable = "avx2,f16c")]
fn unpack_avx2(rows: [&[Q2K]; ROWS], tile: &mut Tile) {
    // A tile holds one super-block or none.
    if tile.n_groups() == 0 {
        return;
    }
    let blocks = nth(rows, 0);
    let three = _mm256_set1_epi8(3);
    for piece in 0..4 {
        let (half, first_chunk) = (piece / 2, 4 * (piece % 2));
        let v = columns(blocks, |b| &b.qs.as_chunks::<16>().0[piece]);
        for (chunk, v) in v.into_iter().enumerate() {
            for group in 0..4 {
                let v = _mm256_and_si256(shift_right(v, 2 * group), three);
                set_chunk(tile, 4 * half + group, first_chunk + chunk, v);
            }
        }
    }
    let units = dwords(blocks, |b| [b.d[0], b.d[1], b.dmin[0], b.dmin[1]]);
    let (d, dmin) = (low_halves(units), high_halves(units));
    for (i, v) in columns(blocks, |b| &b.scales).into_iter().enumerate() {
        for k in 0..4 {
            let (group, half) = (2 * i + k / 2, k % 2);
            let byte = byte_bits(v, k);
            let scale = _mm256_and_si256(byte, _mm256_set1_epi32(15));
            let min = _mm256_srli_epi32::<4>(byte);
            store_rows(
                &mut tile.scale[group][half],
                _mm256_mul_ps(d, _mm256_cvtepi32_ps(scale)),
            );
            store_rows(
                &mut tile.min[group][half],
                _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(min)),
            );
        }
    }
}
