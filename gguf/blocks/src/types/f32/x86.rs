//! AVX2 kernel of `F32`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use std::arch::x86_64::_mm256_castsi256_ps;

use crate::tile::{Panel, ROWS};
use crate::x86::{store_rows, unpack_pieces};

/// Unpacks at [`crate::Level::Avx2`].
pub(super) fn unpack(rows: [&[u8]; ROWS], first_col: usize, panel: &mut Panel) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2 and F16C.
    unsafe { unpack_avx2(rows, first_col, panel) }
}

#[target_feature(enable = "avx2,f16c")]
fn unpack_avx2(rows: [&[u8]; ROWS], first_col: usize, panel: &mut Panel) {
    unpack_pieces(
        rows,
        first_col,
        panel,
        f32::from_le_bytes,
        |out: &mut [[f32; ROWS]; 4], v| {
            for (out, v) in out.iter_mut().zip(v) {
                store_rows(out, _mm256_castsi256_ps(v));
            }
        },
    );
}
