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
    __m128, __m256, _MM_HINT_T0, _mm_add_ps, _mm_and_si128, _mm_loadl_epi64, _mm_loadu_si128, _mm_movehl_ps,
    _mm_movelh_ps, _mm_prefetch, _mm_set1_epi8, _mm_set1_epi16, _mm_setzero_ps, _mm_srli_epi16,
    _mm_storeu_ps, _mm_sub_epi8, _mm_unpackhi_ps, _mm_unpacklo_ps, _mm256_broadcast_ss,
    _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps,
    _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_hadd_ps,
    _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps,
};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ops::Range;

use gguf_blocks::kernel::LINE;

use super::portable::{self, weigh_with};
use super::tile::{Softmax, Step};
use super::{BLOCK, GROUP, LANES, MOST};
use crate::kv::{KvType, RowsOfHead};

/// Vectors that are read in one go, as many as a block of the types that have blocks has.
const RUN: usize = 4;
/// Bytes from a key that is read to the one that is fetched meanwhile. Processors look ahead by themselves only within
/// a page, and not at all where values are read column after column.
const AHEAD: usize = 4096;
/// Queries from which on weights are put into whole vectors first, so that a product is one instruction.
const WIDE: usize = 4;

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

/// The twin of `portable::mix`. Reached only for a [`gguf_blocks::Cpu`] of this level.
pub(super) fn mix(out: &mut [f32], factor: f32, later: &[f32], later_factor: f32) {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn with_avx2(out: &mut [f32], factor: f32, later: &[f32], later_factor: f32) {
        portable::mix(out, factor, later, later_factor);
    }
    // SAFETY: this is reached with a `Cpu` that has AVX2, FMA and F16C.
    unsafe { with_avx2(out, factor, later, later_factor) }
}

/// How eight elements of a row come into a register.
trait Element {
    /// Whether a row is blocks of [`RUN`] vectors with a scale each.
    const BLOCKS: bool;
    /// Bytes of [`RUN`] vectors.
    const BYTES: usize;

    /// Vector `i` of the [`RUN`] at `run`, which have this scale.
    ///
    /// # Safety
    /// `i` is less than [`RUN`], and the vector's bytes (of a block all) are readable.
    unsafe fn load(run: *const u8, i: usize, scale: __m256) -> __m256;
}

struct F32;
struct F16;
struct Bf16;
struct Q8_0;
struct Q4_0;

impl Element for F32 {
    const BLOCKS: bool = false;
    const BYTES: usize = 4 * LANES * RUN;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(run: *const u8, i: usize, _: __m256) -> __m256 {
        // SAFETY: the bytes are there, and the load needs no alignment.
        unsafe { _mm256_loadu_ps(run.add(4 * LANES * i).cast()) }
    }
}

impl Element for F16 {
    const BLOCKS: bool = false;
    const BYTES: usize = 2 * LANES * RUN;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(run: *const u8, i: usize, _: __m256) -> __m256 {
        // SAFETY: the bytes are there, and the load needs no alignment.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(run.add(2 * LANES * i).cast()) })
    }
}

impl Element for Bf16 {
    const BLOCKS: bool = false;
    const BYTES: usize = 2 * LANES * RUN;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(run: *const u8, i: usize, _: __m256) -> __m256 {
        // SAFETY: the bytes are there, and the load needs no alignment.
        let bits = unsafe { _mm_loadu_si128(run.add(2 * LANES * i).cast()) };
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
    }
}

impl Element for Q8_0 {
    const BLOCKS: bool = true;
    const BYTES: usize = 2 + 32;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(run: *const u8, i: usize, scale: __m256) -> __m256 {
        // SAFETY: a block has four times eight bytes behind its scale.
        let q = unsafe { _mm_loadl_epi64(run.add(2 + i * LANES).cast()) };
        _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), scale)
    }
}

impl Element for Q4_0 {
    const BLOCKS: bool = true;
    const BYTES: usize = 2 + 16;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(run: *const u8, i: usize, scale: __m256) -> __m256 {
        // SAFETY: a block has twice eight bytes behind its scale.
        let both = unsafe { _mm_loadl_epi64(run.add(2 + i % 2 * LANES).cast()) };
        // The later half of the elements lies in the high four bits.
        let moved = if i < 2 { both } else { _mm_srli_epi16::<4>(both) };
        let q = _mm_sub_epi8(_mm_and_si128(moved, _mm_set1_epi8(15)), _mm_set1_epi8(8));
        _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), scale)
    }
}

/// The scale of a block, a half in front of the values, in all lanes; zeros for types without blocks.
///
/// # Safety
/// `block` is that of [`Element::BYTES`] readable bytes, if the type has blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scale<E: Element>(block: *const u8) -> __m256 {
    if !E::BLOCKS {
        return _mm256_setzero_ps();
    }
    // SAFETY: as the caller says.
    let bits = i16::from_le_bytes(unsafe { block.cast::<[u8; 2]>().read() });
    // All lanes become floats: one that is put into lane 0 would wait for what the register had in the others.
    _mm256_cvtph_ps(_mm_set1_epi16(bits))
}

/// Up to seven elements behind the whole vectors of a row of a type without blocks, and zeros.
///
/// # Safety
/// `row` is that of `n` readable elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load_tail<E: Element>(row: *const u8, n: usize) -> __m256 {
    let mut bytes = [0u8; 4 * LANES];
    let size = E::BYTES / (RUN * LANES);
    let whole = n / LANES * LANES;
    // SAFETY: fewer than eight elements are copied, each of at most four bytes, and the array has all that a load takes.
    unsafe {
        std::ptr::copy_nonoverlapping(row.add(whole * size), bytes.as_mut_ptr(), (n - whole) * size);
        E::load(bytes.as_ptr(), 0, _mm256_setzero_ps())
    }
}

/// Fetches the bytes of a [`RUN`] from `there` on, of which nothing need be there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fetch<E: Element>(there: *const u8) {
    for line in 0..E::BYTES.div_ceil(LINE) {
        _mm_prefetch::<_MM_HINT_T0>(there.wrapping_add(line * LINE).cast());
    }
}

/// Scores of the groups of positions that have one seen.
///
/// # Safety
/// As for `block`; keys are of type `E`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scores_of<E: Element, const N: usize>(step: &Step<'_, N>, scores: &mut [[f32; BLOCK]; N]) {
    // SAFETY: as the caller says; rows of blocks are whole ones.
    unsafe {
        if step.k.dim().is_multiple_of(RUN * LANES) {
            scores_of_rows::<E, N, true>(step, scores);
        } else {
            assert!(!E::BLOCKS, "rows of blocks are whole ones");
            scores_of_rows::<E, N, false>(step, scores);
        }
    }
}

/// The same for keys that are whole [`RUN`]s, or not.
///
/// # Safety
/// As above.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scores_of_rows<E: Element, const N: usize, const WHOLE: bool>(
    step: &Step<'_, N>,
    scores: &mut [[f32; BLOCK]; N],
) {
    let q = step.q.map(<[f32]>::as_ptr);
    let (dim, row_bytes) = (step.k.dim(), step.k.row_bytes());
    let groups = step.seen.start / GROUP..step.seen.end.div_ceil(GROUP);
    // Each key meets all queries, which are operands in memory: one instruction a product.
    // SAFETY: the caller says that the groups' rows are there, and the queries' elements.
    unsafe {
        let mut key = row(&step.k, step.first + groups.start * GROUP);
        for group in groups {
            let first = group * GROUP;
            if N.is_multiple_of(4) {
                let mut fours = [[_mm_setzero_ps(); GROUP]; MOST / 4];
                for i in 0..GROUP {
                    let sums = dots::<E, N, WHOLE>(key, dim, q);
                    for j in 0..N / 4 {
                        fours[j][i] = total([sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]]);
                    }
                    key = key.wrapping_add(row_bytes);
                }
                for j in 0..N / 4 {
                    let rows = transposed(fours[j]);
                    for i in 0..4 {
                        _mm_storeu_ps(scores[4 * j + i][first..first + GROUP].as_mut_ptr(), rows[i]);
                    }
                }
            } else {
                let mut sums = [[_mm256_setzero_ps(); N]; GROUP];
                for i in 0..GROUP {
                    sums[i] = dots::<E, N, WHOLE>(key, dim, q);
                    key = key.wrapping_add(row_bytes);
                }
                for j in 0..N {
                    let own = total([sums[0][j], sums[1][j], sums[2][j], sums[3][j]]);
                    _mm_storeu_ps(scores[j][first..first + GROUP].as_mut_ptr(), own);
                }
            }
        }
    }
}

/// Element `i` of vector `j` becomes element `j` of vector `i`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transposed([a, b, c, d]: [__m128; 4]) -> [__m128; 4] {
    let (low, high) = (_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
    let (low2, high2) = (_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
    [
        _mm_movelh_ps(low, low2),
        _mm_movehl_ps(low2, low),
        _mm_movelh_ps(high, high2),
        _mm_movehl_ps(high2, high),
    ]
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

/// Eight partial sums of the products of `N` queries with a key.
///
/// # Safety
/// The row and queries have `dim` elements, the queries whole vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dots<E: Element, const N: usize, const WHOLE: bool>(
    row: *const u8,
    dim: usize,
    q: [*const f32; N],
) -> [__m256; N] {
    let mut sums = [_mm256_setzero_ps(); N];
    let (n_vectors, n_runs) = (dim / LANES, dim / (RUN * LANES));
    for run in 0..n_runs {
        // SAFETY: the vectors are of the row.
        unsafe {
            let at = row.add(run * E::BYTES);
            fetch::<E>(at.wrapping_add(AHEAD));
            let scale = scale::<E>(at);
            for i in 0..RUN {
                let k = E::load(at, i, scale);
                for j in 0..N {
                    let q = _mm256_loadu_ps(q[j].add((run * RUN + i) * LANES));
                    sums[j] = _mm256_fmadd_ps(k, q, sums[j]);
                }
            }
        }
    }
    if WHOLE {
        return sums;
    }
    for v in n_runs * RUN..n_vectors {
        // SAFETY: only types without blocks have such rows of keys; the vector is of the row.
        unsafe {
            let k = E::load(row.add(n_runs * E::BYTES), v % RUN, _mm256_setzero_ps());
            for j in 0..N {
                let q = _mm256_loadu_ps(q[j].add(v * LANES));
                sums[j] = _mm256_fmadd_ps(k, q, sums[j]);
            }
        }
    }
    if !dim.is_multiple_of(LANES) {
        // SAFETY: as above.
        unsafe {
            let k = load_tail::<E>(row, dim);
            for j in 0..N {
                let q = _mm256_loadu_ps(q[j].add(n_vectors * LANES));
                sums[j] = _mm256_fmadd_ps(k, q, sums[j]);
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
    let n_vectors = if E::BLOCKS {
        dim.div_ceil(LANES)
    } else {
        dim / LANES
    };
    let stride = dim.next_multiple_of(LANES);
    let mut wide = [[MaybeUninit::uninit(); N]; BLOCK];
    if N >= WIDE {
        spread(p, &step.seen, &mut wide);
    }
    // SAFETY: the rows of positions that are seen are there, and vectors of the output up to `stride`; the weights of
    // these positions have been spread where they are read.
    unsafe {
        let first = row(&step.v, step.first + step.seen.start);
        let values = Values {
            first,
            next: first.wrapping_add(BLOCK * step.v.row_bytes()),
            row_bytes: step.v.row_bytes(),
            n: step.seen.len(),
            p: p.each_ref().map(|p| p.as_ptr().add(step.seen.start)),
            wide: wide.as_ptr().add(step.seen.start).cast(),
            factors,
            out: out.as_mut_ptr(),
            stride,
        };
        let mut v = 0;
        while v + RUN <= n_vectors {
            match N {
                MOST => {
                    for v in v..v + RUN {
                        values.add::<E, 1, 4>(v);
                    }
                }
                4 => {
                    values.add::<E, 2, 2>(v);
                    values.add::<E, 2, 2>(v + 2);
                }
                _ => values.add::<E, 4, 1>(v),
            }
            v += RUN;
        }
        while v < n_vectors {
            values.add::<E, 1, 4>(v);
            v += 1;
        }
        if n_vectors * LANES < stride {
            values.add_tail::<E>(dim);
        }
    }
}

/// Puts each weight in all lanes of a vector: of the groups that have a position seen, position after position.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn spread<const N: usize>(p: &[[f32; BLOCK]; N], seen: &Range<usize>, wide: &mut Wide<N>) {
    let groups = seen.start / GROUP..seen.end.div_ceil(GROUP);
    let there = wide.as_chunks_mut::<GROUP>().0[groups.clone()].iter_mut();
    for (group, wide) in groups.zip(there) {
        for j in 0..N {
            let own = p[j].as_chunks::<GROUP>().0[group];
            for i in 0..GROUP {
                wide[i][j].write(Lanes([own[i]; LANES]));
            }
        }
    }
}

/// Weights of the positions of a block, each in all lanes of a vector; those of positions that are not seen are not there.
type Wide<const N: usize> = [[MaybeUninit<Lanes>; N]; BLOCK];

/// A vector in one cache line: one in two would take two reads.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Lanes([f32; LANES]);

/// Values of positions that follow each other, and what they are added to with which weights.
struct Values<const N: usize> {
    first: *const u8,
    /// What is wanted after these: the next block's values, as far as they are as many bytes as these.
    next: *const u8,
    row_bytes: usize,
    n: usize,
    /// Weights of each query.
    p: [*const f32; N],
    /// The same in all lanes of vectors, of a position query after query. Only for [`WIDE`] queries or more.
    wide: *const f32,
    factors: [f32; N],
    out: *mut f32,
    stride: usize,
}

impl<const N: usize> Values<N> {
    /// Adds `C` vectors from number `v` on, all of them in one of the row's [`RUN`]s, `T` positions a turn.
    ///
    /// # Safety
    /// The pointers are valid for the numbers of rows and weights, rows have the vectors, and so has the output.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn add<E: Element, const C: usize, const T: usize>(&self, v: usize) {
        const { assert!(C * T == RUN) };
        let mut sums = [[_mm256_setzero_ps(); C]; N];
        let turns = self.n / T;
        // In turns of as many vectors as are fetched in one, all of what is wanted next is fetched, evenly.
        let next = self.next.wrapping_add(v / C * turns * E::BYTES);
        // The compiler would load the weights once and multiply then, which is more instructions.
        let wide: [*const f32; C] =
            std::array::from_fn(|c| if c == 0 { self.wide } else { black_box(self.wide) });
        // SAFETY: as the caller says.
        unsafe {
            for turn in 0..turns {
                fetch::<E>(next.wrapping_add(turn * E::BYTES));
                for i in 0..T {
                    self.position::<E, C>(v, turn * T + i, wide, &mut sums);
                }
            }
            for i in turns * T..self.n {
                self.position::<E, C>(v, i, wide, &mut sums);
            }
            for j in 0..N {
                for c in 0..C {
                    self.put(j, v + c, sums[j][c]);
                }
            }
        }
    }

    /// Adds `C` vectors of position `i`.
    ///
    /// # Safety
    /// As above; `wide` are the weights, if there are any.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn position<E: Element, const C: usize>(
        &self,
        v: usize,
        i: usize,
        wide: [*const f32; C],
        sums: &mut [[__m256; C]; N],
    ) {
        // SAFETY: as the caller says.
        unsafe {
            let run = self.first.add(v / RUN * E::BYTES + i * self.row_bytes);
            let scale = scale::<E>(run);
            let mut vectors = [_mm256_setzero_ps(); C];
            for c in 0..C {
                vectors[c] = E::load(run, v % RUN + c, scale);
            }
            for j in 0..N {
                for c in 0..C {
                    let p = if N >= WIDE {
                        _mm256_loadu_ps(wide[c].add((i * N + j) * LANES))
                    } else {
                        _mm256_broadcast_ss(&*self.p[j].add(i))
                    };
                    sums[j][c] = _mm256_fmadd_ps(vectors[c], p, sums[j][c]);
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
