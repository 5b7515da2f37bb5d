//! Twins of the products for AVX2 and for AVX-512.

#![expect(
    unsafe_code,
    reason = "loads and stores through references, and entry into code compiled for AVX2 or AVX-512"
)]

use std::arch::x86_64::{
    __m256, _mm_add_ps, _mm_movehl_ps, _mm_movelh_ps, _mm_storeu_ps, _mm_unpackhi_ps, _mm_unpacklo_ps,
    _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps,
    _mm512_broadcast_f32x8, _mm512_castps256_ps512, _mm512_castps512_ps256, _mm512_extractf32x8_ps,
    _mm512_fmadd_ps, _mm512_insertf32x8, _mm512_setzero_ps,
};

use gguf_blocks::kernel::SUMS;
use gguf_blocks::tile::{Panel, ROWS};

/// Loads a number for each row.
#[inline]
#[target_feature(enable = "avx2")]
fn load_rows(rows: &[f32; ROWS]) -> __m256 {
    // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_ps(rows.as_ptr()) }
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

/// The same with two rows in each register. Reached only for a [`gguf_blocks::Cpu`] of level AVX-512.
pub(super) fn multiply_panel_512<const N: usize>(panel: &Panel, x: [&[f32]; N], acc: &mut [[f32; ROWS]; N]) {
    // SAFETY: `float::columns` calls this for a `Cpu` that has AVX-512, nothing else does.
    unsafe { multiply_panel_avx512(panel, x, acc) }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
fn multiply_panel_avx512<const N: usize>(panel: &Panel, x: [&[f32]; N], acc: &mut [[f32; ROWS]; N]) {
    const PAIRS: usize = ROWS / 2;
    let n = panel.n_cols();
    assert!(x.iter().all(|x| x.len() == n), "columns have the panel's length");
    let rows = panel.v.as_chunks::<2>().0;
    let mut sums = [[_mm512_setzero_ps(); PAIRS]; N];
    let both = |low, high| _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high);
    for k in (0..n / SUMS * SUMS).step_by(SUMS) {
        let mut v = [_mm512_setzero_ps(); N];
        for c in 0..N {
            // SAFETY: all columns have `n` elements, and `k + 8` of them are there.
            v[c] = _mm512_broadcast_f32x8(unsafe { _mm256_loadu_ps(x[c].as_ptr().add(k)) });
        }
        for p in 0..PAIRS {
            // SAFETY: a row of a panel has room for more than `n` elements.
            let load = |row: usize| unsafe { _mm256_loadu_ps(rows[p][row].as_ptr().add(k)) };
            let w = both(load(0), load(1));
            for c in 0..N {
                sums[c][p] = _mm512_fmadd_ps(w, v[c], sums[c][p]);
            }
        }
    }
    if !n.is_multiple_of(SUMS) {
        let rest = n / SUMS * SUMS;
        for c in 0..N {
            let v = _mm512_broadcast_f32x8(load_some(&x[c][rest..]));
            for p in 0..PAIRS {
                let w = both(load_some(&rows[p][0][rest..n]), load_some(&rows[p][1][rest..n]));
                sums[c][p] = _mm512_fmadd_ps(w, v, sums[c][p]);
            }
        }
    }
    for c in 0..N {
        for half in 0..2 {
            let [low, high] = [sums[c][2 * half], sums[c][2 * half + 1]];
            let of_rows = [
                _mm512_castps512_ps256(low),
                _mm512_extractf32x8_ps::<1>(low),
                _mm512_castps512_ps256(high),
                _mm512_extractf32x8_ps::<1>(high),
            ];
            for (acc, total) in acc[c][4 * half..].iter_mut().zip(total(of_rows)) {
                *acc += total;
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

/// `((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))` of each of four.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn total([a, b, c, d]: [__m256; 4]) -> [f32; 4] {
    let fold = |v| _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let pairs = |a, b| _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
    let (ab, cd) = (pairs(fold(a), fold(b)), pairs(fold(c), fold(d)));
    let sums = _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
    let mut total = [0.0; 4];
    // SAFETY: the array has the 16 bytes.
    unsafe { _mm_storeu_ps(total.as_mut_ptr(), sums) };
    total
}
