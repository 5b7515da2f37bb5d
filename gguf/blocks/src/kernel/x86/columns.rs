//! Products of groups with columns.
//!
//! Where many tiles meet the same columns, these are spread first: each four bytes of a column are stored eight times,
//! once for each row of a tile, and each of its scales too. So a product takes them from memory with the instruction
//! that multiplies, and no instruction of its own has to broadcast them for every tile.
//!
//! A chunk's bytes are multiplied with those of a column and added in pairs to 16 bits, as often as the type's
//! [`TileKind::max`] allows, before they are widened; integer scales go into that widening. Tiles of wide kinds are
//! multiplied in 16 bits and added in 32.

#![expect(
    unsafe_code,
    reason = "loads and stores through references, and marks in assembly"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "iterators over arrays would call code that is not compiled for AVX2"
)]

use std::arch::x86_64::{
    __m256, __m256i, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256,
    _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_mullo_epi32, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8, _mm256_slli_epi16,
    _mm256_srai_epi16, _mm256_srai_epi32, _mm256_srli_epi16, _mm256_storeu_si256,
};

use crate::activation::GroupScale;
use crate::kernel::{Columns, IntBlock};
use crate::tile::{GROUP, MAX_COLUMNS, Minima, ROWS, Spread, SpreadGroup, Tile, TileKind};
use crate::x86::{load_rows, load32, store_rows};

/// Chunks of four columns in a group.
pub(in crate::kernel) const CHUNKS: usize = GROUP / 4;

/// The columns of a group.
pub(in crate::kernel) trait GroupColumns: Copy {
    /// Whether the values of the rows come straight from unpacking; those of wide kinds are signed then.
    const DOT: bool;

    /// Values `4 * chunk ..` of column `c`, for each row.
    ///
    /// # Safety
    /// The machine has AVX2, FMA and F16C; so for all of these.
    unsafe fn q(self, chunk: usize, c: usize) -> __m256i;

    /// The scale of column `c`.
    unsafe fn d(self, c: usize) -> __m256;

    /// The sum of column `c`.
    unsafe fn sum(self, c: usize) -> __m256;

    /// The whole sums of both halves of column `c`.
    unsafe fn int(self, c: usize) -> __m256i;
}

/// A single column as it lies in memory.
#[derive(Clone, Copy)]
pub(super) struct Single<'a> {
    pub(super) q: &'a [i8; GROUP],
    pub(super) s: &'a GroupScale,
}

impl GroupColumns for Single<'_> {
    const DOT: bool = true;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn q(self, chunk: usize, _: usize) -> __m256i {
        dword(self.q.as_chunks::<4>().0[chunk])
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn d(self, _: usize) -> __m256 {
        _mm256_set1_ps(self.s.d)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn sum(self, _: usize) -> __m256 {
        _mm256_set1_ps(self.s.sum)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn int(self, _: usize) -> __m256i {
        pair(self.s.int)
    }
}

impl GroupColumns for &SpreadGroup {
    const DOT: bool = false;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn q(self, chunk: usize, c: usize) -> __m256i {
        // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
        unsafe { _mm256_loadu_si256(self.q[chunk][c].as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn d(self, c: usize) -> __m256 {
        load_rows(&self.d[c])
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn sum(self, c: usize) -> __m256 {
        load_rows(&self.sum[c])
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn int(self, c: usize) -> __m256i {
        load_pairs(&self.int[c])
    }
}

/// Spreads the groups of `N` columns, their values in 16 bits if `wide`; what `kind` does not need is left as it was.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) fn spread<const N: usize>(
    kind: TileKind,
    wide: bool,
    x: Columns<'_>,
    spread: &mut Spread,
) {
    let q = x.q.as_chunks::<4>().0.chunks_exact(CHUNKS * N);
    let scales = x.scales.as_chunks::<N>().0;
    for ((group, q), s) in spread.0.iter_mut().zip(q).zip(scales) {
        if wide {
            spread_words::<N>(q, &mut group.q);
        } else {
            for chunk in 0..CHUNKS {
                for c in 0..N {
                    store_dwords(&mut group.q[chunk][c], dword(q[chunk * N + c]));
                }
            }
        }
        for (c, s) in s.iter().enumerate() {
            store_rows(&mut group.d[c], _mm256_set1_ps(s.d));
            if kind.mins == Minima::Float {
                store_rows(&mut group.sum[c], _mm256_set1_ps(s.sum));
            }
            if kind.offset > 0 || kind.mins == Minima::Int {
                group.int[c] = [s.int; ROWS];
            }
        }
    }
}

/// Spreads a group in 16 bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn spread_words<const N: usize>(q: &[[i8; 4]], out: &mut [[[[u8; 4]; ROWS]; MAX_COLUMNS]; 2 * CHUNKS]) {
    for (i, eight) in q.as_chunks::<ROWS>().0.iter().enumerate() {
        // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
        let v = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
        let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(v));
        let odd = _mm256_srai_epi16::<8>(v);
        let mut words = [[[0; 4]; ROWS]; 2];
        store_dwords(&mut words[0], even);
        store_dwords(&mut words[1], odd);
        for j in 0..ROWS {
            let (chunk, c) = ((i * ROWS + j) / N, (i * ROWS + j) % N);
            for (half, words) in words.iter().enumerate() {
                let v = _mm256_set1_epi32(i32::from_ne_bytes(words[j]));
                store_dwords(&mut out[2 * chunk + half][c], v);
            }
        }
    }
}

/// The product of a tile with `N` columns that are spread.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply<B: IntBlock, const N: usize>(tile: &Tile, spread: &Spread, acc: &mut [[f32; ROWS]]) {
    let spread = &spread.0[..tile.n_groups()];
    let mut total = [_mm256_setzero_ps(); N];
    for c in 0..N {
        total[c] = load_rows(&acc[c]);
    }
    let mut sums = if B::KIND.int_scales {
        [_mm256_setzero_ps(); N]
    } else {
        total
    };
    for (g, x) in spread.iter().enumerate() {
        let g = opaque(g);
        let v = tile.v[g].as_chunks::<32>().0;
        add_group::<B, N, _>(tile, g, |chunk| load32(&v[chunk]), x, &mut sums);
    }
    if !B::KIND.int_scales {
        total = sums;
    }
    finish::<N, _>(
        const { B::KIND },
        tile,
        spread.len(),
        |g| &spread[g],
        sums,
        &mut total,
    );
    for c in 0..N {
        store_rows(&mut acc[c], total[c]);
    }
}

/// Adds group `g` with `N` columns to the sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_group<B: IntBlock, const N: usize, X: GroupColumns>(
    tile: &Tile,
    g: usize,
    v: impl Fn(usize) -> __m256i,
    x: X,
    sums: &mut [__m256; N],
) {
    let kind = const { B::KIND };
    let n = if kind.halves { 4 } else { 8 };
    let mut ints = [_mm256_setzero_si256(); N];
    for part in 0..CHUNKS / n {
        if !kind.int_scales {
            ints = [_mm256_setzero_si256(); N];
        }
        let scale = if kind.int_scales {
            load_pairs(&tile.int_scale[g][part])
        } else {
            _mm256_set1_epi16(1)
        };
        ints = if kind.wide() && !X::DOT {
            add_words::<B, N, X>(part * n, n, &v, x, scale, ints)
        } else {
            add_chunks::<B, N, X>(part * n, n, &v, x, scale, ints)
        };
        if kind.int_scales {
            continue;
        }
        scale_floats::<B, N, X>(tile, g, part, x, ints, sums);
    }
    if kind.int_scales {
        scale_ints::<B, N, X>(tile, g, x, ints, sums);
    }
}

/// Adds the whole sums of group `g`, or of its half `part`, with their scale, and behind the last its minima.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn scale_floats<B: IntBlock, const N: usize, X: GroupColumns>(
    tile: &Tile,
    g: usize,
    part: usize,
    x: X,
    mut ints: [__m256i; N],
    sums: &mut [__m256; N],
) {
    let kind = const { B::KIND };
    if lowered::<X>(kind) {
        let lower = lower(kind.offset, [part == 0, part == 1 || !kind.halves]);
        add_lower::<N, X>(lower, x, &mut ints);
    }
    let scale = load_rows(&tile.scale[g][part]);
    for c in 0..N {
        // SAFETY: this code is compiled for the same features.
        let factor = _mm256_mul_ps(scale, unsafe { x.d(c) });
        sums[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(ints[c]), factor, sums[c]);
    }
    if kind.mins == Minima::Float && (part == 1 || !kind.halves) {
        add_min::<N, X>(&tile.min[g], x, sums);
    }
}

/// Adds the whole sums of group `g` to those in the unit of the super-block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn scale_ints<B: IntBlock, const N: usize, X: GroupColumns>(
    tile: &Tile,
    g: usize,
    x: X,
    mut ints: [__m256i; N],
    sums: &mut [__m256; N],
) {
    if lowered::<X>(const { B::KIND }) {
        add_lower::<N, X>(load_pairs(&tile.lower[g]), x, &mut ints);
    }
    scale_lowered(x, ints, sums);
}

/// The same of values without the offset.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn scale_lowered<const N: usize, X: GroupColumns>(
    x: X,
    ints: [__m256i; N],
    sums: &mut [__m256; N],
) {
    for c in 0..N {
        // SAFETY: this code is compiled for the same features.
        sums[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(ints[c]), unsafe { x.d(c) }, sums[c]);
    }
}

/// Adds group `g`, of a kind with integer scales, with one column to the sum: `two` is as for
/// [`Target::signed_group`](super::Target::signed_group).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_signed_group(
    kind: TileKind,
    tile: &Tile,
    g: usize,
    two: impl Fn(usize) -> [[__m256i; 2]; 2],
    x: Single<'_>,
    sum: __m256,
) -> __m256 {
    let pairs = if kind.halves { 2 } else { 4 };
    // At least a pair, as magnitudes are at most 64.
    let steps = (steps(kind.max - kind.offset) / 2).min(pairs);
    let (mut ints, mut words) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    let mut add = |k: usize| {
        let [v, signs] = two(k);
        for i in 0..2 {
            // SAFETY: this code is compiled for the same features.
            let q = _mm256_sign_epi8(unsafe { x.q(2 * k + i, 0) }, signs[i]);
            words = _mm256_add_epi16(words, _mm256_maddubs_epi16(v[i], q));
        }
        if (k + 1).is_multiple_of(steps) {
            let scale = load_pairs(&tile.int_scale[g][k / pairs]);
            ints = _mm256_add_epi32(ints, _mm256_madd_epi16(words, scale));
            words = _mm256_setzero_si256();
        }
    };
    // Not a loop, which the compiler would not always write out: places of signs are known then.
    add(0);
    add(1);
    add(2);
    add(3);
    // SAFETY: as above.
    _mm256_fmadd_ps(_mm256_cvtepi32_ps(ints), unsafe { x.d(0) }, sum)
}

/// Whether values have the kind's offset on them: those of wide kinds come from unpacking without it.
const fn lowered<X: GroupColumns>(kind: TileKind) -> bool {
    kind.offset > 0 && !(X::DOT && kind.wide())
}

/// What the sums of both halves are multiplied with to lower values by `offset` in some of the halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) fn lower(offset: u8, halves: [bool; 2]) -> __m256i {
    let offset = -i16::from(offset);
    pair([i16::from(halves[0]) * offset, i16::from(halves[1]) * offset])
}

/// Adds `lower` times the sums of both halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_lower<const N: usize, X: GroupColumns>(lower: __m256i, x: X, ints: &mut [__m256i; N]) {
    for c in 0..N {
        // SAFETY: this code is compiled for the same features.
        ints[c] = _mm256_add_epi32(ints[c], _mm256_madd_epi16(lower, unsafe { x.int(c) }));
    }
}

/// Takes the minima of a group from the sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) fn add_min<const N: usize, X: GroupColumns>(
    min: &[f32; ROWS],
    x: X,
    sums: &mut [__m256; N],
) {
    let min = load_rows(min);
    for c in 0..N {
        // SAFETY: this code is compiled for the same features.
        sums[c] = _mm256_fnmadd_ps(min, unsafe { x.sum(c) }, sums[c]);
    }
}

/// Sums of products of two neighbours: of values of a kind, with signs where it is wide, and of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn twos(kind: TileKind, v: __m256i, q: __m256i) -> __m256i {
    if kind.wide() {
        // |v| * (q with the sign of v); |v| <= 128 and |q| <= 127 do not saturate.
        _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(q, v))
    } else {
        _mm256_maddubs_epi16(v, q)
    }
}

/// Adds `scale * sum(v * q)` over the `n` chunks from `first` on, in bytes and 16 bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_chunks<B: IntBlock, const N: usize, X: GroupColumns>(
    first: usize,
    n: usize,
    v: &impl Fn(usize) -> __m256i,
    x: X,
    scale: __m256i,
    mut ints: [__m256i; N],
) -> [__m256i; N] {
    let steps = const { steps(largest(B::KIND)) }.min(n);
    for start in (first..first + n).step_by(steps) {
        let mut words = [_mm256_setzero_si256(); N];
        for chunk in start..start + steps {
            let v = v(chunk);
            for c in 0..N {
                // SAFETY: this code is compiled for the same features.
                let q = unsafe { x.q(chunk, c) };
                words[c] = _mm256_add_epi16(words[c], twos(const { B::KIND }, v, q));
                pin::<N>(&mut words[c]);
            }
        }
        for c in 0..N {
            ints[c] = _mm256_add_epi32(ints[c], _mm256_madd_epi16(words[c], scale));
            pin::<N>(&mut ints[c]);
        }
    }
    ints
}

/// The same for wide kinds in 16 bits and 32: products of whole bytes would not fit. `ints` are zeros or of an integer
/// scale.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_words<B: IntBlock, const N: usize, X: GroupColumns>(
    first: usize,
    n: usize,
    v: &impl Fn(usize) -> __m256i,
    x: X,
    scale: __m256i,
    mut ints: [__m256i; N],
) -> [__m256i; N] {
    let mut sums = [_mm256_setzero_si256(); N];
    // In parts of four, which the compiler writes out.
    for part in (first..first + n).step_by(4) {
        for chunk in part..part + 4 {
            let v = v(chunk);
            let (even, odd) = (
                _mm256_and_si256(v, _mm256_set1_epi16(0xff)),
                _mm256_srli_epi16::<8>(v),
            );
            for c in 0..N {
                // SAFETY: this code is compiled for the same features.
                let q = unsafe { [x.q(2 * chunk, c), x.q(2 * chunk + 1, c)] };
                sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(even, q[0]));
                pin::<N>(&mut sums[c]);
                sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(odd, q[1]));
                pin::<N>(&mut sums[c]);
            }
        }
    }
    let scale = _mm256_srai_epi32::<16>(scale);
    for c in 0..N {
        if const { B::KIND }.int_scales {
            sums[c] = _mm256_mullo_epi32(sums[c], scale);
        }
        ints[c] = _mm256_add_epi32(ints[c], sums[c]);
    }
    ints
}

/// A number that the compiler knows nothing about: else it would write the loop over groups out eight times, which is
/// no faster and takes long to compile for every type.
#[inline]
fn opaque(mut n: usize) -> usize {
    // SAFETY: no instruction is in it.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) n, options(nomem, nostack, preserves_flags, pure)) };
    n
}

/// Keeps the order of chunks: of several columns the compiler would take one after the other, and add sums in pairs, with
/// more registers than there are.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pin<const N: usize>(v: &mut __m256i) {
    if N == 1 {
        return;
    }
    // SAFETY: no instruction is in it.
    unsafe {
        std::arch::asm!(
            "/* {0} */",
            inout(ymm_reg) * v,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Ends a super-block of integer scales: their unit, and minima. `x` gives the columns of each of its `n_groups` groups.
// Not an iterator: the standard library's functions around one are not compiled for AVX2.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) fn finish<const N: usize, X: GroupColumns>(
    kind: TileKind,
    tile: &Tile,
    n_groups: usize,
    x: impl Fn(usize) -> X,
    sums: [__m256; N],
    acc: &mut [__m256; N],
) {
    if !kind.int_scales {
        return;
    }
    let unit = load_rows(&tile.unit);
    for c in 0..N {
        acc[c] = _mm256_fmadd_ps(unit, sums[c], acc[c]);
    }
    match kind.mins {
        Minima::None => {}
        Minima::Float => {
            for (g, min) in tile.min[..n_groups].iter().enumerate() {
                add_min::<N, X>(min, x(g), acc);
            }
        }
        Minima::Int => {
            let mut sums = [_mm256_setzero_ps(); N];
            for (g, min) in tile.int_min[..n_groups].iter().enumerate() {
                let (min, x) = (load_pairs(min), x(g));
                for c in 0..N {
                    // SAFETY: this code is compiled for the same features.
                    let (int, d) = unsafe { (x.int(c), x.d(c)) };
                    sums[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(min, int)), d, sums[c]);
                }
            }
            let unit = load_rows(&tile.min_unit);
            for c in 0..N {
                acc[c] = _mm256_fnmadd_ps(unit, sums[c], acc[c]);
            }
        }
    }
}

/// The largest number that products of bytes are taken with.
const fn largest(kind: TileKind) -> u8 {
    if kind.wide() { 128 } else { kind.max }
}

/// Chunks whose products with numbers up to `max`, added in pairs, can be added in 16 bits: a power of two.
const fn steps(max: u8) -> usize {
    match i16::MAX as usize / (2 * 127 * max as usize) {
        0 => 1,
        8.. => 8,
        n => 1 << n.ilog2(),
    }
}

/// Stores four bytes for each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store_dwords(out: &mut [[u8; 4]; ROWS], v: __m256i) {
    // SAFETY: the reference is to 32 writable bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
}

/// Four numbers, for each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dword([a, b, c, d]: [i8; 4]) -> __m256i {
    _mm256_set1_epi32(i32::from_ne_bytes([a as u8, b as u8, c as u8, d as u8]))
}

/// Two small numbers, for each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) fn pair([low, high]: [i16; 2]) -> __m256i {
    _mm256_set1_epi32(i32::from(high) << 16 | i32::from(low as u16))
}

/// Loads two small numbers for each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) fn load_pairs(rows: &[[i16; 2]; ROWS]) -> __m256i {
    // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(rows.as_ptr().cast()) }
}
