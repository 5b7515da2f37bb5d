//! A block of positions by AVX2, FMA and F16C.

#![expect(
    unsafe_code,
    reason = "loads and stores by pointer, and entry into code compiled for AVX2"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "iterators over arrays would call code that is not compiled for AVX2"
)]

use std::arch::x86_64::{
    __m128, __m256, _mm_add_ps, _mm_and_si128, _mm_castps_pd, _mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32,
    _mm_loadl_epi64, _mm_loadu_si128, _mm_set1_epi8, _mm_srli_epi16, _mm_storeh_pd, _mm_storel_pd,
    _mm_storeu_ps, _mm_sub_epi8, _mm256_broadcast_ss, _mm256_castps256_ps128, _mm256_castsi256_ps,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_extractf128_ps,
    _mm256_fmadd_ps, _mm256_hadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_slli_epi32, _mm256_storeu_ps,
};

use super::portable::weigh_with;
use super::tile::{Softmax, Step};
use super::{BLOCK, GROUP, LANES};
use crate::kv::{KvType, RowsOfHead};

/// The twin of `portable::run`. Reached only for a [`gguf_blocks::Cpu`] of this level.
pub(super) fn run<const N: usize>(step: &Step<'_, N>, softmax: &mut [Softmax; N], out: &mut [f32]) {
    let padded = |n: usize| n.next_multiple_of(LANES);
    let end = step.first + step.seen.end.next_multiple_of(GROUP);
    for rows in [&step.k, &step.v] {
        let there = end
            .checked_mul(rows.row_bytes())
            .is_some_and(|n| n <= rows.bytes().len());
        assert!(there, "whole groups of positions are there");
    }
    assert!(
        step.seen.start <= step.seen.end && step.seen.end <= BLOCK,
        "positions of a block"
    );
    assert!(
        step.q.iter().all(|q| q.len() == padded(step.k.dim())),
        "queries are padded"
    );
    assert_eq!(out.len(), N * padded(step.v.dim()), "{N} rows of padded output");
    // SAFETY: this is reached with a `Cpu` that has AVX2, FMA and F16C; the assertions are what `block` asks for.
    unsafe { block(step, softmax, out) }
}

/// # Safety
/// Rows are there up to the end of the last group with a position that is seen, which is one of the block; queries and
/// rows of `out` have whole vectors for all elements.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn block<const N: usize>(step: &Step<'_, N>, softmax: &mut [Softmax; N], out: &mut [f32]) {
    let mut scores = [[0.0; BLOCK]; N];
    // SAFETY: as the caller says; each type is read as what it is.
    unsafe {
        match step.k.kind() {
            KvType::F32 => scores_of::<F32, N>(step, &mut scores),
            KvType::F16 => scores_of::<F16, N>(step, &mut scores),
            KvType::Bf16 => scores_of::<Bf16, N>(step, &mut scores),
            KvType::Q8_0 => scores_of::<Q8_0, N>(step, &mut scores),
            KvType::Q4_0 => scores_of::<Q4_0, N>(step, &mut scores),
        }
    }
    let factors = weigh_with(step, &mut scores, softmax);
    // SAFETY: as above.
    unsafe {
        match step.v.kind() {
            KvType::F32 => values_of::<F32, N>(step, &scores, factors, out),
            KvType::F16 => values_of::<F16, N>(step, &scores, factors, out),
            KvType::Bf16 => values_of::<Bf16, N>(step, &scores, factors, out),
            KvType::Q8_0 => values_of::<Q8_0, N>(step, &scores, factors, out),
            KvType::Q4_0 => values_of::<Q4_0, N>(step, &scores, factors, out),
        }
    }
}

/// How eight elements of a row come into a register.
trait Element {
    /// Vectors of a block of the type.
    const VECTORS: usize;
    /// Bytes of a block.
    const BYTES: usize;

    /// Vector `i` of a block with this scale.
    ///
    /// # Safety
    /// `block` is that of [`Element::BYTES`] readable bytes; `i` is less than [`Element::VECTORS`].
    unsafe fn load(block: *const u8, i: usize, scale: __m256) -> __m256;
}

struct F32;
struct F16;
struct Bf16;
struct Q8_0;
struct Q4_0;

impl Element for F32 {
    const VECTORS: usize = 1;
    const BYTES: usize = 4 * LANES;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(block: *const u8, _: usize, _: __m256) -> __m256 {
        // SAFETY: the bytes are there, and the load needs no alignment.
        unsafe { _mm256_loadu_ps(block.cast()) }
    }
}

impl Element for F16 {
    const VECTORS: usize = 1;
    const BYTES: usize = 2 * LANES;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(block: *const u8, _: usize, _: __m256) -> __m256 {
        // SAFETY: the bytes are there, and the load needs no alignment.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(block.cast()) })
    }
}

impl Element for Bf16 {
    const VECTORS: usize = 1;
    const BYTES: usize = 2 * LANES;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(block: *const u8, _: usize, _: __m256) -> __m256 {
        // SAFETY: the bytes are there, and the load needs no alignment.
        let bits = unsafe { _mm_loadu_si128(block.cast()) };
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
    }
}

impl Element for Q8_0 {
    const VECTORS: usize = 4;
    const BYTES: usize = 2 + 32;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(block: *const u8, i: usize, scale: __m256) -> __m256 {
        // SAFETY: a block has four times eight bytes behind its scale.
        let q = unsafe { _mm_loadl_epi64(block.add(2 + i * LANES).cast()) };
        _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), scale)
    }
}

impl Element for Q4_0 {
    const VECTORS: usize = 4;
    const BYTES: usize = 2 + 16;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(block: *const u8, i: usize, scale: __m256) -> __m256 {
        // SAFETY: a block has twice eight bytes behind its scale.
        let both = unsafe { _mm_loadl_epi64(block.add(2 + i % 2 * LANES).cast()) };
        // The later half of the elements lies in the high four bits.
        let moved = if i < 2 { both } else { _mm_srli_epi16::<4>(both) };
        let q = _mm_sub_epi8(_mm_and_si128(moved, _mm_set1_epi8(15)), _mm_set1_epi8(8));
        _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), scale)
    }
}

/// The scale of a block, a half in front of the values, in all lanes; zeros for types without blocks.
///
/// # Safety
/// `block` is that of [`Element::BYTES`] readable bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scale<E: Element>(block: *const u8) -> __m256 {
    if E::VECTORS == 1 {
        return _mm256_setzero_ps();
    }
    // SAFETY: as the caller says.
    let bits = u16::from_le_bytes(unsafe { block.cast::<[u8; 2]>().read() });
    _mm256_set1_ps(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))))
}

/// Up to seven elements behind the whole vectors of a row of a type without blocks, and zeros.
///
/// # Safety
/// `row` is that of `n` readable elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load_tail<E: Element>(row: *const u8, n: usize) -> __m256 {
    let mut bytes = [0u8; 4 * LANES];
    let size = E::BYTES / LANES;
    let whole = n / LANES * LANES;
    // SAFETY: fewer than eight elements are copied, each of at most four bytes, and the array has all that a load takes.
    unsafe {
        std::ptr::copy_nonoverlapping(row.add(whole * size), bytes.as_mut_ptr(), (n - whole) * size);
        E::load(bytes.as_ptr(), 0, _mm256_setzero_ps())
    }
}

/// Scores of the groups of positions that have one seen.
///
/// # Safety
/// As for `block`; keys are of type `E`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scores_of<E: Element, const N: usize>(step: &Step<'_, N>, scores: &mut [[f32; BLOCK]; N]) {
    let q = step.q.map(<[f32]>::as_ptr);
    let dim = step.k.dim();
    let groups = step.seen.start / GROUP..step.seen.end.div_ceil(GROUP);
    for first in groups.map(|group| group * GROUP) {
        // SAFETY: the caller says that the group's rows are there, and the queries' elements.
        unsafe {
            if N <= 2 {
                let rows = [0, 1, 2, 3].map(|i| row(&step.k, step.first + first + i));
                let sums = dots::<E, N, 4>(rows, dim, q);
                for (scores, sums) in scores.iter_mut().zip(sums) {
                    _mm_storeu_ps(scores[first..first + GROUP].as_mut_ptr(), total(sums));
                }
                continue;
            }
            for first in [first, first + 2] {
                let rows = [0, 1].map(|i| row(&step.k, step.first + first + i));
                let sums = dots::<E, N, 2>(rows, dim, q);
                for (scores, sums) in scores
                    .as_chunks_mut::<2>()
                    .0
                    .iter_mut()
                    .zip(sums.as_chunks::<2>().0)
                {
                    let both = _mm_castps_pd(total([sums[0][0], sums[0][1], sums[1][0], sums[1][1]]));
                    _mm_storel_pd(scores[0][first..first + 2].as_mut_ptr().cast(), both);
                    _mm_storeh_pd(scores[1][first..first + 2].as_mut_ptr().cast(), both);
                }
            }
        }
    }
}

/// Where the row of a position is.
///
/// # Safety
/// The row is there.
#[inline]
unsafe fn row(rows: &RowsOfHead<'_>, pos: usize) -> *const u8 {
    // SAFETY: as the caller says.
    unsafe { rows.bytes().as_ptr().add(pos * rows.row_bytes()) }
}

/// Eight partial sums of the products of `N` queries with `R` keys.
///
/// # Safety
/// Rows and queries have `dim` elements, the queries whole vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dots<E: Element, const N: usize, const R: usize>(
    rows: [*const u8; R],
    dim: usize,
    q: [*const f32; N],
) -> [[__m256; R]; N] {
    let mut sums = [[_mm256_setzero_ps(); R]; N];
    let n_blocks = dim / (E::VECTORS * LANES);
    for b in 0..n_blocks {
        // SAFETY: the block is one of the row's.
        unsafe {
            let blocks = rows.map(|row| row.add(b * E::BYTES));
            let scales = blocks.map(|block| scale::<E>(block));
            for i in 0..E::VECTORS {
                let mut k = [_mm256_setzero_ps(); R];
                for r in 0..R {
                    k[r] = E::load(blocks[r], i, scales[r]);
                }
                for j in 0..N {
                    let q = _mm256_loadu_ps(q[j].add((b * E::VECTORS + i) * LANES));
                    for r in 0..R {
                        sums[j][r] = _mm256_fmadd_ps(k[r], q, sums[j][r]);
                    }
                }
            }
        }
    }
    if !dim.is_multiple_of(E::VECTORS * LANES) {
        // SAFETY: only types without blocks have such rows of keys.
        unsafe {
            for r in 0..R {
                let k = load_tail::<E>(rows[r], dim);
                for j in 0..N {
                    let q = _mm256_loadu_ps(q[j].add(dim / LANES * LANES));
                    sums[j][r] = _mm256_fmadd_ps(k, q, sums[j][r]);
                }
            }
        }
    }
    sums
}

/// `((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))` of each of four.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn total([a, b, c, d]: [__m256; 4]) -> __m128 {
    let fours = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours))
}

/// Adds weighted values to the output, which is multiplied with the factors.
///
/// # Safety
/// As for `block`; values are of type `E`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn values_of<E: Element, const N: usize>(
    step: &Step<'_, N>,
    p: &[[f32; BLOCK]; N],
    factors: [f32; N],
    out: &mut [f32],
) {
    let dim = step.v.dim();
    // Rows of blocks have whole vectors, of which the last may have elements that nobody asks for.
    let n_vectors = if E::VECTORS > 1 {
        dim.div_ceil(LANES)
    } else {
        dim / LANES
    };
    let stride = dim.next_multiple_of(LANES);
    // SAFETY: the rows of positions that are seen are there, and vectors of the output up to `stride`.
    unsafe {
        let values = Values {
            first: row(&step.v, step.first + step.seen.start),
            row_bytes: step.v.row_bytes(),
            n: step.seen.len(),
            p: p.each_ref().map(|p| p.as_ptr().add(step.seen.start)),
            factors,
            out: out.as_mut_ptr(),
            stride,
        };
        let mut v = 0;
        let wide = match N {
            1 => 8,
            2 => 4,
            _ => 2,
        };
        while v + wide <= n_vectors {
            match N {
                1 => values.add::<E, 8>(v),
                2 => values.add::<E, 4>(v),
                _ => values.add::<E, 2>(v),
            }
            v += wide;
        }
        while v < n_vectors {
            values.add::<E, 1>(v);
            v += 1;
        }
        if n_vectors * LANES < stride {
            values.add_tail::<E>(dim);
        }
    }
}

/// Values of positions that follow each other, and what they are added to with which weights.
struct Values<const N: usize> {
    first: *const u8,
    row_bytes: usize,
    n: usize,
    p: [*const f32; N],
    factors: [f32; N],
    out: *mut f32,
    stride: usize,
}

impl<const N: usize> Values<N> {
    /// Adds `C` vectors from number `v` on: all of one block, or whole blocks.
    ///
    /// # Safety
    /// The pointers are valid for the numbers of rows and weights, rows have the vectors, and so has the output.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn add<E: Element, const C: usize>(&self, v: usize) {
        let mut sums = [[_mm256_setzero_ps(); C]; N];
        // SAFETY: as the caller says.
        unsafe {
            let first = self.first.add(v / E::VECTORS * E::BYTES);
            for i in 0..self.n {
                let block = first.add(i * self.row_bytes);
                let mut vectors = [_mm256_setzero_ps(); C];
                let mut of_block = _mm256_setzero_ps();
                for c in 0..C {
                    let block = block.add(c / E::VECTORS * E::BYTES);
                    if c % E::VECTORS == 0 {
                        of_block = scale::<E>(block);
                    }
                    vectors[c] = E::load(block, v % E::VECTORS + c % E::VECTORS, of_block);
                }
                for j in 0..N {
                    let p = _mm256_broadcast_ss(&*self.p[j].add(i));
                    for c in 0..C {
                        sums[j][c] = _mm256_fmadd_ps(vectors[c], p, sums[j][c]);
                    }
                }
            }
            for j in 0..N {
                for c in 0..C {
                    self.put(j, v + c, sums[j][c]);
                }
            }
        }
    }

    /// Adds the elements behind the whole vectors.
    ///
    /// # Safety
    /// As above; rows have `dim` elements without blocks.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn add_tail<E: Element>(&self, dim: usize) {
        let mut sums = [_mm256_setzero_ps(); N];
        // SAFETY: as the caller says.
        unsafe {
            for i in 0..self.n {
                let v = load_tail::<E>(self.first.add(i * self.row_bytes), dim);
                for j in 0..N {
                    let p = _mm256_broadcast_ss(&*self.p[j].add(i));
                    sums[j] = _mm256_fmadd_ps(v, p, sums[j]);
                }
            }
            for j in 0..N {
                self.put(j, dim / LANES, sums[j]);
            }
        }
    }

    /// `out = out * factor + sum` for vector `v` of query `j`.
    ///
    /// # Safety
    /// The output has it.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn put(&self, j: usize, v: usize, sum: __m256) {
        // SAFETY: as the caller says.
        unsafe {
            let out = self.out.add(j * self.stride + v * LANES);
            let factor = _mm256_set1_ps(self.factors[j]);
            _mm256_storeu_ps(out, _mm256_fmadd_ps(_mm256_loadu_ps(out), factor, sum));
        }
    }
}
