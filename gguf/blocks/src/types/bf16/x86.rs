//! AVX2 kernel of `BF16`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use std::arch::x86_64::{_mm256_and_si256, _mm256_castsi256_ps, _mm256_set1_epi32, _mm256_slli_epi32};

use crate::half_bulk::bf16_to_f32;
use crate::tile::{Panel, ROWS};
use crate::x86::{store_rows, unpack_pieces};

/// Unpacks at [`crate::Level::Avx2`].
pub(super) fn unpack(rows: [&[u8]; ROWS], first_col: usize, panel: &mut Panel) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2 and F16C.
    unsafe { unpack_avx2(rows, first_col, panel) }
}

#[target_feature(enable = "avx2,f16c")]
fn unpack_avx2(rows: [&[u8]; ROWS], first_col: usize, panel: &mut Panel) {
    let value = |b| bf16_to_f32(u16::from_le_bytes(b));
    unpack_pieces(rows, first_col, panel, value, |out: &mut [[f32; ROWS]; 8], v| {
        for (out, v) in out.as_chunks_mut::<2>().0.iter_mut().zip(v) {
            let high = _mm256_and_si256(v, _mm256_set1_epi32(0xffff_0000_u32 as i32));
            store_rows(&mut out[0], _mm256_castsi256_ps(_mm256_slli_epi32::<16>(v)));
            store_rows(&mut out[1], _mm256_castsi256_ps(high));
        }
    });
}
