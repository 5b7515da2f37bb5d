//! AVX2 kernel of `BF16`.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use std::arch::x86_64::{_mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_slli_epi32};

use crate::half_bulk::bf16_to_f32;
use crate::tile::{Panel, ROWS};
use crate::x86::{dot_eights, load16, unpack_eights};

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
    let value = |b| bf16_to_f32(u16::from_le_bytes(b));
    unpack_eights(rows, first_col, panel, value, |b: &[u8; 16]| {
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load16(b))))
    });
}

#[target_feature(enable = "avx2,fma,f16c")]
fn dot_avx2(rows: [&[u8]; ROWS], ahead: &[u8], x: &[f32], acc: &mut [f32; ROWS]) {
    dot_eights(
        rows,
        ahead,
        x,
        acc,
        |b| bf16_to_f32(u16::from_le_bytes(b)),
        |b: &[u8; 16]| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load16(b)))),
    );
}
