//! AVX2 twins of the products.

#![expect(
    unsafe_code,
    reason = "loads and stores through references, and entry into code compiled for AVX2"
)]

use std::arch::x86_64::{
    __m256, _MM_HINT_T0, _mm_add_ps, _mm_prefetch, _mm_storeu_ps, _mm256_add_ps, _mm256_castps256_ps128,
    _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_hadd_ps, _mm256_loadu_ps, _mm256_mul_ps,
    _mm256_permute2f128_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
    _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

use gguf_blocks::tile::{Panel, ROWS};

use super::attention::{BLOCK, LANES, Softmax, soften_with, weigh_with};
use super::float::{Lanes, SUMS};

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

/// The twin of `float::columns`. Reached only for a [`gguf_blocks::Cpu`] of this level.
pub(super) fn multiply_panel<const N: usize>(panel: &Panel, x: [&[f32]; N], acc: &mut [[f32; ROWS]; N]) {
    // SAFETY: `float::columns` calls this for a `Cpu` that has AVX2 and FMA, nothing else does.
    unsafe { multiply_panel_avx2(panel, x, acc) }
}

#[target_feature(enable = "avx2,fma")]
fn multiply_panel_avx2<const N: usize>(panel: &Panel, x: [&[f32]; N], acc: &mut [[f32; ROWS]; N]) {
    /// Rows that share the loads of columns: with three columns, twelve sums.
    const FOUR: usize = ROWS / 2;
    let n = panel.n_cols();
    assert!(x.iter().all(|x| x.len() == n), "columns have the panel's length");
    for (half, w) in panel.v.as_chunks::<FOUR>().0.iter().enumerate() {
        let mut sums = [[_mm256_setzero_ps(); FOUR]; N];
        for k in (0..n / SUMS * SUMS).step_by(SUMS) {
            let mut v = [_mm256_setzero_ps(); N];
            for c in 0..N {
                // SAFETY: all columns have `n` elements, and `k + 8` of them are there.
                v[c] = unsafe { _mm256_loadu_ps(x[c].as_ptr().add(k)) };
            }
            for r in 0..FOUR {
                // SAFETY: a row of a panel has room for more than `n` elements.
                let w = unsafe { _mm256_loadu_ps(w[r].as_ptr().add(k)) };
                for c in 0..N {
                    sums[c][r] = _mm256_fmadd_ps(w, v[c], sums[c][r]);
                }
            }
        }
        if !n.is_multiple_of(SUMS) {
            for c in 0..N {
                let v = load_some(&x[c][n / SUMS * SUMS..]);
                for r in 0..FOUR {
                    let w = load_some(&w[r][n / SUMS * SUMS..n]);
                    sums[c][r] = _mm256_fmadd_ps(w, v, sums[c][r]);
                }
            }
        }
        for c in 0..N {
            let total = total(sums[c]);
            for r in 0..FOUR {
                acc[c][half * FOUR + r] += total[r];
            }
        }
    }
}

/// Up to seven numbers, and zeros behind them.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_some(x: &[f32]) -> __m256 {
    let mut all = [0.0; SUMS];
    all[..x.len()].copy_from_slice(x);
    load_rows(&all)
}

/// `((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))` of each of four.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn total([a, b, c, d]: [__m256; 4]) -> [f32; 4] {
    let fours = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    let sums = _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours));
    let mut total = [0.0; 4];
    // SAFETY: the array has the 16 bytes.
    unsafe { _mm_storeu_ps(total.as_mut_ptr(), sums) };
    total
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
        for (r, row) in block.iter_mut().enumerate() {
            let at = r * stride + i * LANES;
            *row = load_rows(rows[at..at + LANES].try_into().expect("eight elements"));
        }
        for (lanes, column) in lanes.iter_mut().zip(transpose(block)) {
            store_rows(lanes, column);
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
        for (column, lanes) in block.iter_mut().zip(lanes) {
            *column = load_rows(lanes);
        }
        for (r, values) in transpose(block).into_iter().enumerate() {
            let at = r * stride + i * LANES;
            let row = &mut rows[at..at + LANES];
            store_rows(row.try_into().expect("eight elements"), values);
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
