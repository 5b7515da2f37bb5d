//! Products of tiles with several columns at level AVX-512: unpacking and products with one column are those of AVX2.
//!
//! A register holds the eight rows for two columns, side by side: lane `2 * row + column`. So eight bytes of the columns,
//! which lie together, are all that a product needs beside the rows, each twice. As at level AVX-VNNI one instruction
//! adds four products to 32 bits, and the code is compiled once for all types.

#![expect(
    unsafe_code,
    reason = "loads through references, and entry into code compiled for AVX-512"
)]

use std::arch::x86_64::{
    __m256i, __m512, __m512i, _mm512_add_epi32, _mm512_castps256_ps512, _mm512_castps512_ps256,
    _mm512_castsi256_si512, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_extractf32x8_ps, _mm512_fmadd_ps,
    _mm512_fnmadd_ps, _mm512_madd_epi16, _mm512_mul_ps, _mm512_mullo_epi32, _mm512_permutex2var_ps,
    _mm512_permutexvar_epi32, _mm512_permutexvar_ps, _mm512_set1_epi64, _mm512_setr_epi32, _mm512_setzero_ps,
    _mm512_setzero_si512, _mm512_srai_epi32,
};

use super::x86::columns::{CHUNKS, load_pairs};
use super::x86::{self, Unpack};
use super::{Columns, IntKernel, each_tile};
use crate::activation::GroupScale;
use crate::tile::{Minima, ROWS, Tile, TileKind};
use crate::x86::{load_rows, load32, store_rows};

/// The kernels of a type.
pub(super) fn kernel<B: Unpack>() -> IntKernel {
    IntKernel {
        multiply: |tiles, x, spread, acc| {
            // A single column fills no pair.
            if acc.len() == tiles.len() {
                return (x86::kernel::<B>().multiply)(tiles, x, spread, acc);
            }
            each_tile(tiles, x, acc, |tile, x, acc| {
                // SAFETY: `super::kernel` hands this out for a `Cpu` that has the level.
                unsafe { multiply(const { B::KIND }, tile, x, acc) }
            });
        },
        together: 1,
        ..x86::kernel::<B>()
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn multiply(kind: TileKind, tile: &Tile, x: Columns<'_>, acc: &mut [[f32; ROWS]]) {
    match acc.as_chunks_mut::<2>().0 {
        [one] => pairs(kind, tile, x, [one]),
        [one, two] => pairs(kind, tile, x, [one, two]),
        _ => unreachable!("kernels take one, two or four columns"),
    }
}

/// `P` pairs of columns, which share the loads of the tile.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn pairs<const P: usize>(kind: TileKind, tile: &Tile, x: Columns<'_>, acc: [&mut [[f32; ROWS]; 2]; P]) {
    let q = x.q.as_chunks::<8>().0.chunks_exact(CHUNKS * P);
    let scales = x.scales.as_chunks::<2>().0.chunks_exact(P);
    let mut total = [_mm512_setzero_ps(); P];
    for p in 0..P {
        total[p] = interleave(acc[p]);
    }
    let mut sums = [_mm512_setzero_ps(); P];
    for (g, (q, s)) in q.zip(scales.clone()).enumerate() {
        let halves = halves::<P>(kind, tile, g, q, s);
        for p in 0..P {
            if kind.int_scales {
                let i = int_scaled(kind, tile, g, [halves[0][p], halves[1][p]]);
                sums[p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), d(&s[p]), sums[p]);
            } else {
                total[p] = add_scaled(kind, tile, g, [halves[0][p], halves[1][p]], &s[p], total[p]);
            }
        }
    }
    if kind.int_scales {
        let unit = twice(&tile.unit);
        for p in 0..P {
            total[p] = _mm512_fmadd_ps(unit, sums[p], total[p]);
        }
        let scales = scales.enumerate();
        match kind.mins {
            Minima::None => {}
            Minima::Float => scales.for_each(|(g, s)| add_min(&tile.min[g], s, &mut total)),
            Minima::Int => {
                let mut sums = [_mm512_setzero_ps(); P];
                scales.for_each(|(g, s)| add_int_min(&tile.int_min[g], s, &mut sums));
                let unit = twice(&tile.min_unit);
                for p in 0..P {
                    total[p] = _mm512_fnmadd_ps(unit, sums[p], total[p]);
                }
            }
        }
    }
    for (acc, total) in acc.into_iter().zip(total) {
        separate(total, acc);
    }
}

/// `sum((v - offset) * q)` of both halves of group `g`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn halves<const P: usize>(
    kind: TileKind,
    tile: &Tile,
    g: usize,
    q: &[[i8; 8]],
    s: &[[GroupScale; 2]],
) -> [[__m512i; P]; 2] {
    let v = tile.v[g].as_chunks::<32>().0;
    let mut sums = [[_mm512_setzero_si512(); P]; 2];
    for (half, sums) in sums.iter_mut().enumerate() {
        for p in 0..P {
            let lower = s[p].map(|s| -i32::from(kind.offset) * i32::from(s.int[half]));
            sums[p] = of_columns(lower);
        }
        for chunk in half * CHUNKS / 2..(half + 1) * CHUNKS / 2 {
            let v = ints_twice(load32(&v[chunk]));
            for p in 0..P {
                let q = _mm512_set1_epi64(i64::from_le_bytes(q[chunk * P + p].map(|q| q as u8)));
                sums[p] = _mm512_dpbusd_epi32(sums[p], v, q);
            }
        }
    }
    sums
}

/// The sums of a group times its integer scales.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn int_scaled(kind: TileKind, tile: &Tile, g: usize, [low, high]: [__m512i; 2]) -> __m512i {
    let scale = |half: usize| _mm512_srai_epi32::<16>(ints_twice(load_pairs(&tile.int_scale[g][half])));
    if kind.halves {
        _mm512_add_epi32(
            _mm512_mullo_epi32(low, scale(0)),
            _mm512_mullo_epi32(high, scale(1)),
        )
    } else {
        _mm512_mullo_epi32(_mm512_add_epi32(low, high), scale(0))
    }
}

/// Adds a group with float scales, and takes its minimum.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_scaled(
    kind: TileKind,
    tile: &Tile,
    g: usize,
    [low, high]: [__m512i; 2],
    s: &[GroupScale; 2],
    acc: __m512,
) -> __m512 {
    let factor = |half: usize| _mm512_mul_ps(twice(&tile.scale[g][half]), d(s));
    let mut acc = [acc];
    if kind.halves {
        acc[0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(low), factor(0), acc[0]);
        acc[0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), factor(1), acc[0]);
    } else {
        let i = _mm512_add_epi32(low, high);
        acc[0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), factor(0), acc[0]);
    }
    if kind.mins == Minima::Float {
        add_min(&tile.min[g], std::slice::from_ref(s), &mut acc);
    }
    acc[0]
}

/// Takes the minima of a group from the sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_min<const P: usize>(min: &[f32; ROWS], s: &[[GroupScale; 2]], acc: &mut [__m512; P]) {
    let min = twice(min);
    for p in 0..P {
        let sum = of_columns(s[p].map(|s| s.sum.to_bits() as i32));
        acc[p] = _mm512_fnmadd_ps(min, floats(sum), acc[p]);
    }
}

/// Adds the integer minima of a group to sums in their unit.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_int_min<const P: usize>(min: &[[i16; 2]; ROWS], s: &[[GroupScale; 2]], sums: &mut [__m512; P]) {
    let min = ints_twice(load_pairs(min));
    for p in 0..P {
        let halves = of_columns(s[p].map(|s| i32::from(s.int[1]) << 16 | i32::from(s.int[0] as u16)));
        let int = _mm512_cvtepi32_ps(_mm512_madd_epi16(min, halves));
        sums[p] = _mm512_fmadd_ps(int, d(&s[p]), sums[p]);
    }
}

/// The scales of two columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn d(s: &[GroupScale; 2]) -> __m512 {
    floats(of_columns(s.map(|s| s.d.to_bits() as i32)))
}

/// A number of each of two columns, in all rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn of_columns([first, second]: [i32; 2]) -> __m512i {
    _mm512_set1_epi64(i64::from(second) << 32 | i64::from(first as u32))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn floats(v: __m512i) -> __m512 {
    std::arch::x86_64::_mm512_castsi512_ps(v)
}

/// A number of each row, in both columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn twice(rows: &[f32; ROWS]) -> __m512 {
    _mm512_permutexvar_ps(rows_twice(), _mm512_castps256_ps512(load_rows(rows)))
}

/// A double word of each row, in both columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn ints_twice(v: __m256i) -> __m512i {
    _mm512_permutexvar_epi32(rows_twice(), _mm512_castsi256_si512(v))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn rows_twice() -> __m512i {
    _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)
}

/// Two columns side by side.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn interleave([first, second]: &[[f32; ROWS]; 2]) -> __m512 {
    let places = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let whole = |rows| _mm512_castps256_ps512(load_rows(rows));
    _mm512_permutex2var_ps(whole(first), places, whole(second))
}

/// Two columns, each for itself.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn separate(v: __m512, [first, second]: &mut [[f32; ROWS]; 2]) {
    let places = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    let v = _mm512_permutexvar_ps(places, v);
    store_rows(first, _mm512_castps512_ps256(v));
    store_rows(second, _mm512_extractf32x8_ps::<1>(v));
}
