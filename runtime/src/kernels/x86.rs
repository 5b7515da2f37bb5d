//! AVX2 twins of the products.

#![expect(
    unsafe_code,
    reason = "loads and stores through references, and entry into code compiled for AVX2"
)]

use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_add_ps, _mm256_cvtepi32_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8, _mm256_storeu_ps, _mm256_sub_ps,
};

use gguf_blocks::activation::{GROUP, Q8Row};
use gguf_blocks::tile::{ROWS, Tile, TileKind};

use super::acts::Acts;
use super::float::Lanes;
use super::int::groups;

/// Loads 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Loads a number for each row.
#[inline]
#[target_feature(enable = "avx2")]
fn load_rows(rows: &[f32; ROWS]) -> __m256 {
    // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_ps(rows.as_ptr()) }
}

/// Stores a number for each row.
#[inline]
#[target_feature(enable = "avx2")]
fn store_rows(rows: &mut [f32; ROWS], v: __m256) {
    // SAFETY: the reference is to 32 writable bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_ps(rows.as_mut_ptr(), v) }
}

/// Asks the caches for `bytes`.
pub(super) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: the address is that of a byte of the slice, and a prefetch has no effect that can be seen.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

/// The twin of `int::multiply`. Reached only for a [`gguf_blocks::Cpu`] of this level.
pub(super) fn multiply_tile(
    kind: TileKind,
    tile: &Tile,
    x: &Acts,
    first_group: usize,
    source: &[u32],
    acc: &mut [[f32; ROWS]],
) {
    // Products of two bytes that can be added in 16 bits.
    let steps = (i32::from(i16::MAX) / (2 * 127 * i32::from(kind.max))).min(8);
    let args = (tile, x, first_group, source, acc);
    // SAFETY: `int::multiply` calls this for a `Cpu` that has AVX2, nothing else does.
    unsafe {
        match (kind.signed, kind.whole_group, kind.has_min, steps) {
            (false, true, true, 8) => columns::<false, true, true, 8>(args),
            (false, true, true, 4..) => columns::<false, true, true, 4>(args),
            (false, true, true, 2..) => columns::<false, true, true, 2>(args),
            (false, false, true, 4..) => columns::<false, false, true, 4>(args),
            (false, false, true, 2..) => columns::<false, false, true, 2>(args),
            (true, true, false, 1..) => columns::<true, true, false, 1>(args),
            (true, false, false, 1..) => columns::<true, false, false, 1>(args),
            (true, false, true, 1..) => columns::<true, false, true, 1>(args),
            _ => unreachable!("no loop for tiles of {kind:?}"),
        }
    }
}

type Args<'a> = (&'a Tile, &'a Acts, usize, &'a [u32], &'a mut [[f32; ROWS]]);

#[target_feature(enable = "avx2")]
fn columns<const SIGNED: bool, const WHOLE: bool, const MIN: bool, const STEPS: usize>(args: Args<'_>) {
    let (tile, x, first_group, source, acc) = args;
    let n = tile.n_groups();
    let (source, rest) = source.as_chunks::<4>();
    let (acc, acc_rest) = acc.as_chunks_mut::<4>();
    for (source, acc) in source.iter().zip(acc) {
        multiply::<SIGNED, WHOLE, MIN, STEPS, 4>(tile, rows(x, *source, first_group, n), acc);
    }
    for (source, acc) in rest.iter().zip(acc_rest) {
        let x = rows(x, [*source], first_group, n);
        multiply::<SIGNED, WHOLE, MIN, STEPS, 1>(tile, x, std::array::from_mut(acc));
    }
}

/// The tile's part of some activation rows.
#[inline]
fn rows<const N: usize>(x: &Acts, source: [u32; N], first_group: usize, n: usize) -> [Q8Row<'_>; N] {
    source.map(|row| groups(x.q8_row(row as usize), first_group, n))
}

#[inline]
fn bytes(q: [i8; 4]) -> [u8; 4] {
    q.map(|q| q as u8)
}

/// `v * q`, added in pairs to 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn pair_sums<const SIGNED: bool>(v: __m256i, q: __m256i) -> __m256i {
    if SIGNED {
        // |v| * (q with the sign of v); |v| <= 128 and |q| <= 127 do not saturate.
        _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(q, v))
    } else {
        _mm256_maddubs_epi16(v, q)
    }
}

/// `N` columns, which share the loads of the tile.
#[inline]
#[target_feature(enable = "avx2")]
fn multiply<const SIGNED: bool, const WHOLE: bool, const MIN: bool, const STEPS: usize, const N: usize>(
    tile: &Tile,
    x: [Q8Row<'_>; N],
    acc: &mut [[f32; ROWS]; N],
) {
    // No closures here: the standard library's functions that would call them are not compiled for AVX2.
    let mut sums = [_mm256_setzero_ps(); N];
    for c in 0..N {
        sums[c] = load_rows(&acc[c]);
    }
    for g in 0..tile.n_groups() {
        let v = tile.v[g].as_chunks::<32>().0;
        let mut q: [&[[i8; 4]]; N] = [&[]; N];
        for c in 0..N {
            q[c] = x[c].q.as_chunks::<GROUP>().0[g].as_chunks::<4>().0;
        }
        let chunks = if WHOLE { 8 } else { 4 };
        for half in 0..8 / chunks {
            let mut ints = [_mm256_setzero_si256(); N];
            for first in (half * chunks..(half + 1) * chunks).step_by(STEPS) {
                let mut words = [_mm256_setzero_si256(); N];
                for chunk in first..first + STEPS {
                    let v = load(&v[chunk]);
                    for c in 0..N {
                        let q = _mm256_set1_epi32(i32::from_ne_bytes(bytes(q[c][chunk])));
                        let product = pair_sums::<SIGNED>(v, q);
                        words[c] = if chunk == first {
                            product
                        } else {
                            _mm256_add_epi16(words[c], product)
                        };
                    }
                }
                for c in 0..N {
                    let sum = _mm256_madd_epi16(words[c], _mm256_set1_epi16(1));
                    ints[c] = if first == half * chunks {
                        sum
                    } else {
                        _mm256_add_epi32(ints[c], sum)
                    };
                }
            }
            let scale = load_rows(&tile.scale[g][half]);
            let min = load_rows(&tile.min[g][half]);
            for c in 0..N {
                let s = &x[c].scales[g];
                let factor = _mm256_mul_ps(scale, _mm256_set1_ps(s.d));
                let product = _mm256_mul_ps(factor, _mm256_cvtepi32_ps(ints[c]));
                sums[c] = _mm256_add_ps(sums[c], product);
                if MIN {
                    let sum = if WHOLE { s.sum } else { s.half[half] };
                    sums[c] = _mm256_sub_ps(sums[c], _mm256_mul_ps(min, _mm256_set1_ps(sum)));
                }
            }
        }
    }
    for (acc, sum) in acc.iter_mut().zip(sums) {
        store_rows(acc, sum);
    }
}

/// The twin of `float::products`, which has checked the lengths. Reached only for a [`gguf_blocks::Cpu`] of
/// this level.
pub(super) fn products<const N: usize>(lanes: Lanes<'_>, x: [&[f32]; N]) -> [[f32; ROWS]; N] {
    // SAFETY: `float::products` calls this for a `Cpu` that has AVX2, nothing else does.
    unsafe { products_avx2(lanes, x) }
}

#[target_feature(enable = "avx2")]
fn products_avx2<const N: usize>(lanes: Lanes<'_>, x: [&[f32]; N]) -> [[f32; ROWS]; N] {
    let mut sums = [_mm256_setzero_ps(); N];
    let n = x.first().map_or(0, |x| x.len());
    assert!(x.iter().all(|x| x.len() == n));
    let used = n
        .saturating_sub(1)
        .saturating_mul(lanes.stride)
        .saturating_add(ROWS);
    assert!(n == 0 || used <= lanes.data.len());
    for k in 0..n {
        // SAFETY: the second assertion covers the last row of lanes.
        let v = unsafe { _mm256_loadu_ps(lanes.data.as_ptr().add(k * lanes.stride)) };
        for c in 0..N {
            // SAFETY: the first assertion says that each row has `n` elements.
            let x = unsafe { *x[c].get_unchecked(k) };
            sums[c] = _mm256_add_ps(sums[c], _mm256_mul_ps(v, _mm256_set1_ps(x)));
        }
    }
    let mut out = [[0.0; ROWS]; N];
    for (out, sum) in out.iter_mut().zip(sums) {
        store_rows(out, sum);
    }
    out
}
