//! AVX2 kernel of `Q5_1`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use std::arch::x86_64::{_mm256_or_si256, _mm256_set1_ps, _mm256_xor_ps};

use super::Q5_1;
use crate::kernel::{blocks, nth};
use crate::tile::{ROWS, Tile};
use crate::x86::{columns, dwords, fifth_bits, halves, high_nibbles, low_nibbles, set_chunk, store_rows};

/// Unpacks at [`crate::Level::Avx2`].
pub(super) fn unpack(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2 and F16C.
    unsafe { unpack_avx2(blocks(rows, first_group, tile.n_groups()), tile) }
}

#[target_feature(enable = "avx2,f16c")]
fn unpack_avx2(rows: [&[Q5_1]; ROWS], tile: &mut Tile) {
    for g in 0..tile.n_groups() {
        let blocks = nth(rows, g);
        let qh = dwords(blocks, |b| b.qh);
        for (chunk, v) in columns(blocks, |b| &b.qs).into_iter().enumerate() {
            set_chunk(
                tile,
                g,
                chunk,
                _mm256_or_si256(low_nibbles(v), fifth_bits(qh, chunk)),
            );
            set_chunk(
                tile,
                g,
                chunk + 4,
                _mm256_or_si256(high_nibbles(v), fifth_bits(qh, chunk + 4)),
            );
        }
        store_rows(&mut tile.scale[g][0], halves(blocks, |b| b.d));
        // The stored minimum is added.
        let m = halves(blocks, |b| b.m);
        store_rows(&mut tile.min[g][0], _mm256_xor_ps(m, _mm256_set1_ps(-0.0)));
    }
}
