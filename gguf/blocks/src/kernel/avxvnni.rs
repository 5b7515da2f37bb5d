//! Products of tiles with several columns at level AVX-VNNI: unpacking and products with one column are those of AVX2.
//!
//! One instruction multiplies the bytes of four columns of a row and adds all four products to 32 bits, so nothing has
//! to be watched for overflow, and what differs between types is a few branches in each group: the code is compiled once
//! for all of them.

#![expect(
    unsafe_code,
    reason = "loads through references, and entry into code compiled for AVX-VNNI"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "iterators over arrays would call code that is not compiled for AVX2"
)]

use std::arch::x86_64::{
    __m256, __m256i, _mm256_add_epi32, _mm256_cvtepi32_ps, _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps,
    _mm256_madd_epi16, _mm256_mul_ps, _mm256_mullo_epi32, _mm256_setzero_ps, _mm256_setzero_si256,
    _mm256_srai_epi32,
};

use super::x86::columns::{self, CHUNKS, GroupColumns, add_min, finish, load_pairs, lower};
use super::x86::{self, Unpack};
use super::{Columns, IntKernel, n_columns};
use crate::tile::{Minima, ROWS, Spread, SpreadGroup, Tile, TileKind};
use crate::x86::{load_rows, load32, store_rows};

/// The kernels of a type.
pub(super) fn kernel<B: Unpack>() -> IntKernel {
    IntKernel {
        // SAFETY: `super::kernel` hands this out for a `Cpu` that has the level.
        multiply: |tiles, x, spread, acc| unsafe { multiply(const { B::KIND }, tiles, x, spread, acc) },
        ..x86::kernel::<B>()
    }
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn multiply(kind: TileKind, tiles: &[Tile], x: Columns<'_>, spread: &mut Spread, acc: &mut [[f32; ROWS]]) {
    match n_columns(tiles, &x, acc) {
        0 => {}
        1 => columns::<1>(kind, tiles, x, spread, acc),
        2 => columns::<2>(kind, tiles, x, spread, acc),
        _ => columns::<4>(kind, tiles, x, spread, acc),
    }
}

/// `N` columns, which all tiles share.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn columns<const N: usize>(
    kind: TileKind,
    tiles: &[Tile],
    x: Columns<'_>,
    spread: &mut Spread,
    acc: &mut [[f32; ROWS]],
) {
    columns::spread::<N>(kind, false, x, spread);
    for (tile, acc) in tiles.iter().zip(acc.chunks_exact_mut(N)) {
        let spread = &spread.0[..tile.n_groups()];
        let mut total = [_mm256_setzero_ps(); N];
        for c in 0..N {
            total[c] = load_rows(&acc[c]);
        }
        let mut sums = [_mm256_setzero_ps(); N];
        for (g, x) in spread.iter().enumerate() {
            let halves = halves::<N>(kind, tile, g, x);
            if kind.int_scales {
                add_int_scaled(kind, tile, g, halves, x, &mut sums);
            } else {
                add_scaled(kind, tile, g, halves, x, &mut total);
            }
        }
        finish::<N, _>(kind, tile, spread.len(), |g| &spread[g], sums, &mut total);
        for c in 0..N {
            store_rows(&mut acc[c], total[c]);
        }
    }
}

/// `sum((v - offset) * q)` of both halves of group `g`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn halves<const N: usize>(kind: TileKind, tile: &Tile, g: usize, x: &SpreadGroup) -> [[__m256i; N]; 2] {
    let v = tile.v[g].as_chunks::<32>().0;
    let mut sums = [[_mm256_setzero_si256(); N]; 2];
    for (half, sums) in sums.iter_mut().enumerate() {
        if kind.offset > 0 {
            let lower = lower(kind.offset, [half == 0, half == 1]);
            for c in 0..N {
                sums[c] = _mm256_madd_epi16(lower, load_pairs(&x.int[c]));
            }
        }
        for chunk in half * CHUNKS / 2..(half + 1) * CHUNKS / 2 {
            let v = load32(&v[chunk]);
            for c in 0..N {
                // SAFETY: this code is compiled for the same features and more.
                sums[c] = _mm256_dpbusd_avx_epi32(sums[c], v, unsafe { x.q(chunk, c) });
            }
        }
    }
    sums
}

/// Adds a group to sums in the unit of the super-block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn add_int_scaled<const N: usize>(
    kind: TileKind,
    tile: &Tile,
    g: usize,
    [low, high]: [[__m256i; N]; 2],
    x: &SpreadGroup,
    sums: &mut [__m256; N],
) {
    let scale = |half: usize| _mm256_srai_epi32::<16>(load_pairs(&tile.int_scale[g][half]));
    for c in 0..N {
        let i = if kind.halves {
            let (low, high) = (
                _mm256_mullo_epi32(low[c], scale(0)),
                _mm256_mullo_epi32(high[c], scale(1)),
            );
            _mm256_add_epi32(low, high)
        } else {
            _mm256_mullo_epi32(_mm256_add_epi32(low[c], high[c]), scale(0))
        };
        sums[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), load_rows(&x.d[c]), sums[c]);
    }
}

/// Adds a group with float scales.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn add_scaled<const N: usize>(
    kind: TileKind,
    tile: &Tile,
    g: usize,
    [low, high]: [[__m256i; N]; 2],
    x: &SpreadGroup,
    acc: &mut [__m256; N],
) {
    let scale = |half: usize| load_rows(&tile.scale[g][half]);
    for c in 0..N {
        let d = load_rows(&x.d[c]);
        if kind.halves {
            let factor = _mm256_mul_ps(scale(0), d);
            acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(low[c]), factor, acc[c]);
            let factor = _mm256_mul_ps(scale(1), d);
            acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(high[c]), factor, acc[c]);
        } else {
            let i = _mm256_add_epi32(low[c], high[c]);
            acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), _mm256_mul_ps(scale(0), d), acc[c]);
        }
    }
    if kind.mins == Minima::Float {
        add_min::<N, _>(&tile.min[g], x, acc);
    }
}
