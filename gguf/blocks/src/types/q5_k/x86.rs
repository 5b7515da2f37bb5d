//! AVX2 kernel of `Q5_K`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use std::arch::x86_64::_mm256_or_si256;

use zerocopy::IntoBytes;

use super::Q5K;
use crate::kernel::{blocks, nth};
use crate::tile::{ROWS, Tile};
use crate::x86::{columns, high_nibbles, low_nibbles, move_bit, set_chunk, set_six_bit};

/// Unpacks at [`crate::Level::Avx2`].
pub(super) fn unpack(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2 and F16C.
    unsafe { unpack_avx2(blocks(rows, first_group, tile.n_groups()), tile) }
}

#[target_feature(enable = "avx2,f16c")]
fn unpack_avx2(rows: [&[Q5K]; ROWS], tile: &mut Tile) {
    // A tile holds one super-block or none.
    if tile.n_groups() == 0 {
        return;
    }
    let blocks = nth(rows, 0);
    for piece in 0..2 {
        let high = columns(blocks, |b| &b.qh.as_chunks::<16>().0[piece]);
        for pair in 0..4 {
            let low = columns(blocks, |b| &b.qs.as_chunks::<16>().0[2 * pair + piece]);
            for chunk in 0..4 {
                let fifth = |group| move_bit(high[chunk], group, 4);
                let (even, odd) = (2 * pair, 2 * pair + 1);
                let v = _mm256_or_si256(low_nibbles(low[chunk]), fifth(even));
                set_chunk(tile, even, 4 * piece + chunk, v);
                let v = _mm256_or_si256(high_nibbles(low[chunk]), fifth(odd));
                set_chunk(tile, odd, 4 * piece + chunk, v);
            }
        }
    }
    set_six_bit(tile, blocks, |b| {
        b.as_bytes()
            .first_chunk()
            .expect("a block has more than 16 bytes")
    });
}
