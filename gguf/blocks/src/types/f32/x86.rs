//! AVX2 kernel of `F32`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use std::arch::x86_64::_mm256_castsi256_ps;

use crate::tile::{Panel, ROWS};
use crate::x86::{dot_eights, load32, unpack_eights};

/// Unpacks at [`crate::Level::Avx2`].
pub(super) fn unpack(rows: [&[u8]; ROWS], first_col: usize, panel: &mut Panel) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2 and F16C.
    unsafe { unpack_avx2(rows, first_col, panel) }
}

/// Multiplies with one column at [`crate::Level::Avx2`].
pub(super) fn dot(rows: [&[u8]; ROWS], ahead: &[u8], x: &[f32], acc: &mut [f32; ROWS]) {
    // SAFETY: only `kernel` hands this function out, for a `Cpu` that has AVX2, FMA and F16C.
    unsafe { dot_avx2(rows, ahead, x, acc) }
}

#[target_feature(enable = "avx2,f16c")]
fn unpack_avx2(rows: [&[u8]; ROWS], first_col: usize, panel: &mut Panel) {
    unpack_eights(rows, first_col, panel, f32::from_le_bytes, |b: &[u8; 32]| {
        _mm256_castsi256_ps(load32(b))
    });
}

#[target_feature(enable = "avx2,fma,f16c")]
fn dot_avx2(rows: [&[u8]; ROWS], ahead: &[u8], x: &[f32], acc: &mut [f32; ROWS]) {
    dot_eights(rows, ahead, x, acc, f32::from_le_bytes, |b: &[u8; 32]| {
        _mm256_castsi256_ps(load32(b))
    });
}
