//! AVX2 kernel of `Q8_0`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use zerocopy::IntoBytes;

use super::Q8_0;
use crate::kernel::{blocks, nth};
use crate::tile::{ROWS, Tile};
use crate::x86::{columns, halves, set_chunk, store_rows};

/// Unpacks at [`crate::Level::Avx2`].
pub(super) fn unpack(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2 and F16C.
    unsafe { unpack_avx2(blocks(rows, first_group, tile.n_groups()), tile) }
}

#[target_feature(enable = "avx2,f16c")]
fn unpack_avx2(rows: [&[Q8_0]; ROWS], tile: &mut Tile) {
    for g in 0..tile.n_groups() {
        let blocks = nth(rows, g);
        for half in 0..2 {
            let v = columns(blocks, |b| &b.qs.as_bytes().as_chunks::<16>().0[half]);
            for (chunk, v) in v.into_iter().enumerate() {
                set_chunk(tile, g, 4 * half + chunk, v);
            }
        }
        store_rows(&mut tile.scale[g][0], halves(blocks, |b| b.d));
    }
}
