//! AVX2 kernel of `Q4_K`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use zerocopy::IntoBytes;

use super::Q4K;
use crate::kernel::{blocks, nth};
use crate::tile::{ROWS, Tile};
use crate::x86::{columns, high_nibbles, low_nibbles, set_chunk, set_six_bit};

/// Unpacks at [`crate::Level::Avx2`].
pub(super) fn unpack(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2 and F16C.
    unsafe { unpack_avx2(blocks(rows, first_group, tile.n_groups()), tile) }
}

#[target_feature(enable = "avx2,f16c")]
fn unpack_avx2(rows: [&[Q4K]; ROWS], tile: &mut Tile) {
    // A tile holds one super-block or none.
    if tile.n_groups() == 0 {
        return;
    }
    let blocks = nth(rows, 0);
    for piece in 0..8 {
        let (pair, first_chunk) = (piece / 2, 4 * (piece % 2));
        let v = columns(blocks, |b| &b.qs.as_chunks::<16>().0[piece]);
        for (chunk, v) in v.into_iter().enumerate() {
            set_chunk(tile, 2 * pair, first_chunk + chunk, low_nibbles(v));
            set_chunk(tile, 2 * pair + 1, first_chunk + chunk, high_nibbles(v));
        }
    }
    set_six_bit(tile, blocks, |b| {
        b.as_bytes()
            .first_chunk()
            .expect("a block has more than 16 bytes")
    });
}
