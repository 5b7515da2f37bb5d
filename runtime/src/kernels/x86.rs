//! AVX2 twins of the products.

#![expect(
    unsafe_code,
    reason = "loads and stores through references, and entry into code compiled for AVX2"
)]

use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_add_ps, _mm256_cvtepi32_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_permute2f128_ps, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_shuffle_ps, _mm256_sign_epi8,
    _mm256_storeu_ps, _mm256_sub_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

use gguf_blocks::activation::{GROUP, Q8Row};
use gguf_blocks::tile::{ROWS, Tile, TileKind};

use super::acts::Acts;
use super::attention::{BLOCK, LANES, Softmax, soften_with, weigh_with};
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

/// The twin of `attention::weigh`. Reached only for a [`gguf_blocks::Cpu`] of this level.
pub(super) fn weigh(scores: &mut [f32; BLOCK], state: &mut Softmax) -> f32 {
    #[target_feature(enable = "avx2")]
    fn with_avx2(scores: &mut [f32; BLOCK], state: &mut Softmax) -> f32 {
        weigh_with(scores, state)
    }
    // SAFETY: `attention::weigh` calls this for a `Cpu` that has AVX2, nothing else does.
    unsafe { with_avx2(scores, state) }
}

/// The twin of `attention::soften`. Reached only for a [`gguf_blocks::Cpu`] of this level.
pub(super) fn soften(scores: &mut [f32; BLOCK], cap: f32) {
    #[target_feature(enable = "avx2")]
    fn with_avx2(scores: &mut [f32; BLOCK], cap: f32) {
        soften_with(scores, cap);
    }
    // SAFETY: `attention::soften` calls this for a `Cpu` that has AVX2, nothing else does.
    unsafe { with_avx2(scores, cap) }
}

/// The twin of `attention::to_lanes`, which has checked the lengths. Reached only for a [`gguf_blocks::Cpu`] of this
/// level.
pub(super) fn to_lanes(rows: &[f32], stride: usize, lanes: &mut [[f32; LANES]]) {
    // SAFETY: `attention::to_lanes` calls this for a `Cpu` that has AVX2, nothing else does.
    unsafe { to_lanes_avx2(rows, stride, lanes) }
}

#[target_feature(enable = "avx2")]
fn to_lanes_avx2(rows: &[f32], stride: usize, lanes: &mut [[f32; LANES]]) {
    let (blocks, rest) = lanes.as_chunks_mut::<LANES>();
    let n = blocks.len() * LANES;
    for (i, lanes) in blocks.iter_mut().enumerate() {
        let mut block = [_mm256_setzero_ps(); LANES];
        for (r, block) in block.iter_mut().enumerate() {
            let at = r * stride + i * LANES;
            *block = load_rows(rows[at..at + LANES].try_into().expect("eight elements"));
        }
        let block = transpose(block);
        for r in 0..LANES {
            store_rows(&mut lanes[r], block[r]);
        }
    }
    for (i, lanes) in rest.iter_mut().enumerate() {
        for (r, lane) in lanes.iter_mut().enumerate() {
            *lane = rows[r * stride + n + i];
        }
    }
}

/// The twin of `attention::from_lanes`, which has checked the lengths. Reached only for a [`gguf_blocks::Cpu`] of
/// this level.
pub(super) fn from_lanes(lanes: &[[f32; LANES]], rows: &mut [f32], stride: usize) {
    // SAFETY: `attention::from_lanes` calls this for a `Cpu` that has AVX2, nothing else does.
    unsafe { from_lanes_avx2(lanes, rows, stride) }
}

#[target_feature(enable = "avx2")]
fn from_lanes_avx2(lanes: &[[f32; LANES]], rows: &mut [f32], stride: usize) {
    let (blocks, rest) = lanes.as_chunks::<LANES>();
    let n = blocks.len() * LANES;
    for (i, lanes) in blocks.iter().enumerate() {
        let mut block = [_mm256_setzero_ps(); LANES];
        for r in 0..LANES {
            block[r] = load_rows(&lanes[r]);
        }
        let block = transpose(block);
        for (r, block) in block.into_iter().enumerate() {
            let at = r * stride + i * LANES;
            let row = &mut rows[at..at + LANES];
            store_rows(row.try_into().expect("eight elements"), block);
        }
    }
    for (i, lanes) in rest.iter().enumerate() {
        for (r, lane) in lanes.iter().enumerate() {
            rows[r * stride + n + i] = *lane;
        }
    }
}

/// Element `j` of row `i` becomes element `i` of row `j`.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(rows: [__m256; LANES]) -> [__m256; LANES] {
    let [a, b, c, d, e, f, g, h] = rows;
    // Pairs, then fours within each half of a register, then the halves.
    let (ab0, ab1) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    let (cd0, cd1) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    let (ef0, ef1) = (_mm256_unpacklo_ps(e, f), _mm256_unpackhi_ps(e, f));
    let (gh0, gh1) = (_mm256_unpacklo_ps(g, h), _mm256_unpackhi_ps(g, h));
    let low = [
        _mm256_shuffle_ps::<0x44>(ab0, cd0),
        _mm256_shuffle_ps::<0xee>(ab0, cd0),
        _mm256_shuffle_ps::<0x44>(ab1, cd1),
        _mm256_shuffle_ps::<0xee>(ab1, cd1),
    ];
    let high = [
        _mm256_shuffle_ps::<0x44>(ef0, gh0),
        _mm256_shuffle_ps::<0xee>(ef0, gh0),
        _mm256_shuffle_ps::<0x44>(ef1, gh1),
        _mm256_shuffle_ps::<0xee>(ef1, gh1),
    ];
    let mut out = [_mm256_setzero_ps(); LANES];
    for i in 0..4 {
        out[i] = _mm256_permute2f128_ps::<0x20>(low[i], high[i]);
        out[i + 4] = _mm256_permute2f128_ps::<0x31>(low[i], high[i]);
    }
    out
}
