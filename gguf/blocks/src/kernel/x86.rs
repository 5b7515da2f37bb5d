//! Integer products at level AVX2: one loop for every type, over the type's unpacking of eight rows.
//!
//! Four columns of all eight rows lie in a register. A chunk's bytes are multiplied with the broadcast bytes of a
//! column and added in pairs to 16 bits, as often as the type's [`TileKind::max`] allows, before they are widened;
//! integer scales go into that widening. Unpacked values go from register to register where there is one column
//! ([`Dot`](super::Dot)), else through a [`Tile`] that is used for many columns.

#![expect(
    unsafe_code,
    reason = "loads through references, code compiled for AVX2, and a trait of such code"
)]

use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_mullo_epi16, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8,
    _mm256_slli_epi16, _mm256_xor_si256,
};
use std::marker::PhantomData;

use super::{Columns, IntBlock, IntKernel, blocks, check_columns, each_of, nth, portable};
use crate::activation::GroupScale;
use crate::tile::{GROUP, Minima, ROWS, Tile, TileKind};
use crate::x86::{high_nibbles, load_rows, load32, low_nibbles, store, store_pairs, store_rows};

/// Chunks of four columns in a group.
pub(super) const CHUNKS: usize = GROUP / 4;

/// A block whose unpacking of eight rows is written for AVX2.
pub(crate) trait Unpack: IntBlock + Sized {
    /// Gives `out` the scales of all groups of the block, of which the first is group `first`, then their values.
    ///
    /// # Safety
    /// The machine has AVX2, FMA and F16C.
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>);
}

/// Where unpacked rows go: into a product with one column if `DOT`, else into the tile. Scales go into the tile in
/// both cases.
pub(crate) struct Target<'a, B, const DOT: bool> {
    tile: &'a mut Tile,
    x: &'a [[i8; GROUP]],
    scales: &'a [GroupScale],
    /// Sums in the unit of the super-block.
    sum: __m256,
    acc: __m256,
    block: PhantomData<B>,
}

/// The kernels of a type.
pub(super) fn kernel<B: Unpack>() -> IntKernel {
    IntKernel {
        kind: B::KIND,
        // SAFETY: `super::kernel` hands these out for a `Cpu` that has the level.
        unpack: |rows, first, tile| unsafe { unpack::<B>(rows, first, tile) },
        // SAFETY: as above.
        dot: |rows, ahead, x, tile, acc| unsafe { dot::<B>(rows, ahead, x, tile, acc) },
        // SAFETY: as above.
        multiply: |tile, x, acc| unsafe { multiply::<B>(tile, x, acc) },
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<B: Unpack>(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile) {
    let blocks = blocks::<B>(rows, first_group, tile.n_groups());
    let mut target = Target::<B, false>::new(tile);
    for b in 0..blocks[0].len() {
        // SAFETY: this code is compiled for the same features.
        unsafe { B::unpack(nth(blocks, b), b * B::GROUPS, &mut target) };
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn dot<B: Unpack>(rows: [&[u8]; ROWS], ahead: &[u8], x: Columns<'_>, tile: &mut Tile, acc: &mut [f32; ROWS]) {
    let n_groups = x.scales.len();
    check_columns(&x, n_groups, 1);
    let blocks = blocks::<B>(rows, 0, n_groups);
    let mut target = Target::<B, true>::new(tile);
    target.acc = load_rows(acc);
    let mut ahead = ahead.chunks(ROWS * size_of::<B>());
    for b in 0..blocks[0].len() {
        prefetch(ahead.next().unwrap_or_default());
        let first = b * B::GROUPS;
        target.x = &x.q.as_chunks::<GROUP>().0[first..first + B::GROUPS];
        target.scales = &x.scales[first..first + B::GROUPS];
        // SAFETY: this code is compiled for the same features.
        unsafe { B::unpack(nth(blocks, b), 0, &mut target) };
        target.finish();
    }
    store_rows(acc, target.acc);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn multiply<B: Unpack>(tile: &Tile, x: Columns<'_>, acc: &mut [[f32; ROWS]]) {
    check_columns(&x, tile.n_groups(), acc.len());
    match acc.len() {
        1 => columns::<B, 1>(tile, x, acc),
        2 => columns::<B, 2>(tile, x, acc),
        _ => columns::<B, 4>(tile, x, acc),
    }
}

impl<'a, B: IntBlock, const DOT: bool> Target<'a, B, DOT> {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn new(tile: &'a mut Tile) -> Self {
        Self {
            tile,
            x: &[],
            scales: &[],
            sum: _mm256_setzero_ps(),
            acc: _mm256_setzero_ps(),
            block: PhantomData,
        }
    }

    /// The tile, for scales.
    #[inline]
    pub(crate) fn tile(&mut self) -> &mut Tile {
        self.tile
    }

    /// Integer scales of a group: of the halves, or that of the whole group in both; both 16-bit numbers of a row are
    /// its scale.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn set_int_scales(&mut self, group: usize, low: __m256i, high: __m256i) {
        store_pairs(&mut self.tile.int_scale[group][0], low);
        if B::KIND.halves {
            store_pairs(&mut self.tile.int_scale[group][1], high);
        }
        if B::KIND.offset > 0 {
            let offset = _mm256_set1_epi16(-i16::from(B::KIND.offset));
            let both = crate::x86::pair(low, high);
            store_pairs(&mut self.tile.lower[group], _mm256_mullo_epi16(both, offset));
        }
    }

    /// The values of a group: a register for each four columns. Those of wide kinds come signed, without the offset.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn group(&mut self, group: usize, v: [__m256i; CHUNKS]) {
        if !DOT {
            let low = self.tile.v[group].as_chunks_mut::<32>().0.iter_mut();
            let high = self.tile.high[group].as_chunks_mut::<32>().0.iter_mut();
            for ((low, high), v) in low.zip(high).zip(v) {
                if B::KIND.wide() {
                    let v = _mm256_xor_si256(v, _mm256_set1_epi8(i8::MIN));
                    store(low, low_nibbles(v));
                    store(high, high_nibbles(v));
                } else {
                    store(low, v);
                }
            }
            return;
        }
        let q = self.x[group].as_chunks::<4>().0;
        let s = std::array::from_ref(&self.scales[group]);
        let mut sums = [if B::KIND.int_scales { self.sum } else { self.acc }];
        add_group::<B, 1, true>(self.tile, group, |chunk| v[chunk], q, s, &mut sums);
        if B::KIND.int_scales {
            self.sum = sums[0];
        } else {
            self.acc = sums[0];
        }
    }

    /// Unpacks a block as the portable kernel does.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn portable(&mut self, rows: [&B; ROWS], first: usize) {
        for (r, row) in rows.into_iter().enumerate() {
            portable::set_block(row, self.tile, first, r);
        }
        const { assert!(!B::KIND.wide(), "values lie in the tile as they are") };
        if DOT {
            for g in first..first + B::GROUPS {
                let v = self.tile.v[g].as_chunks::<32>().0;
                self.group(g, each_of(|chunk| load32(&v[chunk])));
            }
        }
    }

    /// Ends a block whose groups have been multiplied.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn finish(&mut self) {
        let mut acc = [self.acc];
        finish(
            const { B::KIND },
            self.tile,
            B::GROUPS,
            self.scales,
            [self.sum],
            &mut acc,
        );
        (self.acc, self.sum) = (acc[0], _mm256_setzero_ps());
    }
}

/// `N` columns, which share the loads of the tile.
#[target_feature(enable = "avx2,fma,f16c")]
fn columns<B: IntBlock, const N: usize>(tile: &Tile, x: Columns<'_>, acc: &mut [[f32; ROWS]]) {
    // No closures over arrays here: the standard library's functions that would call them are not compiled for AVX2.
    let mut total = [_mm256_setzero_ps(); N];
    for c in 0..N {
        total[c] = load_rows(&acc[c]);
    }
    let mut sums = if B::KIND.int_scales {
        [_mm256_setzero_ps(); N]
    } else {
        total
    };
    let n_groups = tile.n_groups();
    let q = &x.q.as_chunks::<4>().0[..n_groups * CHUNKS * N];
    let scales = &x.scales.as_chunks::<N>().0[..n_groups];
    for g in 0..n_groups {
        let g = opaque(g);
        let v = tile.v[g].as_chunks::<32>().0;
        let q = &q[g * CHUNKS * N..][..CHUNKS * N];
        add_group::<B, N, false>(tile, g, |chunk| load32(&v[chunk]), q, &scales[g], &mut sums);
    }
    if !B::KIND.int_scales {
        total = sums;
    }
    finish(const { B::KIND }, tile, n_groups, x.scales, sums, &mut total);
    for c in 0..N {
        store_rows(&mut acc[c], total[c]);
    }
}

/// Adds group `g` with `N` columns to the sums. Values of wide kinds are `SIGNED`, or as in the tile.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_group<B: IntBlock, const N: usize, const SIGNED: bool>(
    tile: &Tile,
    g: usize,
    v: impl Fn(usize) -> __m256i,
    q: &[[i8; 4]],
    s: &[GroupScale; N],
    sums: &mut [__m256; N],
) {
    let kind = const { B::KIND };
    let lowered = kind.offset > 0 && !(SIGNED && kind.wide());
    let high = tile.high[g].as_chunks::<32>().0;
    let high = |chunk: usize| load32(&high[chunk]);
    if kind.int_scales {
        let mut ints = [_mm256_setzero_si256(); N];
        if lowered {
            let lower = load_pairs(&tile.lower[g]);
            for c in 0..N {
                ints[c] = _mm256_madd_epi16(lower, pair(s[c].int));
            }
        }
        if kind.halves {
            for half in 0..2 {
                let scale = load_pairs(&tile.int_scale[g][half]);
                ints = add_chunks::<B, N, SIGNED>(4 * half, 4, &v, &high, q, scale, ints);
            }
        } else {
            let scale = load_pairs(&tile.int_scale[g][0]);
            ints = add_chunks::<B, N, SIGNED>(0, 8, &v, &high, q, scale, ints);
        }
        for c in 0..N {
            sums[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(ints[c]), _mm256_set1_ps(s[c].d), sums[c]);
        }
        return;
    }
    let n = if kind.halves { 4 } else { 8 };
    for half in 0..CHUNKS / n {
        let mut ints = [_mm256_setzero_si256(); N];
        if lowered {
            let offset = -i16::from(kind.offset);
            for c in 0..N {
                let sum = if kind.halves {
                    i32::from(s[c].int[half])
                } else {
                    i32::from(s[c].int[0]) + i32::from(s[c].int[1])
                };
                ints[c] = _mm256_set1_epi32(i32::from(offset) * sum);
            }
        }
        let ones = _mm256_set1_epi16(1);
        ints = add_chunks::<B, N, SIGNED>(half * n, n, &v, &high, q, ones, ints);
        let scale = load_rows(&tile.scale[g][half]);
        for c in 0..N {
            let factor = _mm256_mul_ps(scale, _mm256_set1_ps(s[c].d));
            sums[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(ints[c]), factor, sums[c]);
        }
    }
    if kind.mins == Minima::Float {
        add_min(&tile.min[g], s, sums);
    }
}

/// Takes the minima of a group from the sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add_min<const N: usize>(min: &[f32; ROWS], s: &[GroupScale; N], sums: &mut [__m256; N]) {
    let min = load_rows(min);
    for c in 0..N {
        sums[c] = _mm256_fnmadd_ps(min, _mm256_set1_ps(s[c].sum), sums[c]);
    }
}

/// Adds `scale * sum(v * q)` over the `n` chunks from `first` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_chunks<B: IntBlock, const N: usize, const SIGNED: bool>(
    first: usize,
    n: usize,
    v: &impl Fn(usize) -> __m256i,
    high: &impl Fn(usize) -> __m256i,
    q: &[[i8; 4]],
    scale: __m256i,
    mut ints: [__m256i; N],
) -> [__m256i; N] {
    let split = B::KIND.wide() && !SIGNED;
    let steps = const { steps(B::KIND, SIGNED) }.min(n);
    for start in (first..first + n).step_by(steps) {
        let (mut words, mut high_words) = ([_mm256_setzero_si256(); N], [_mm256_setzero_si256(); N]);
        for chunk in start..start + steps {
            let v = v(chunk);
            let high = if split { high(chunk) } else { v };
            for c in 0..N {
                let q = _mm256_set1_epi32(i32::from_ne_bytes(bytes(q[chunk * N + c])));
                let product = if B::KIND.wide() && SIGNED {
                    // |v| * (q with the sign of v); |v| <= 128 and |q| <= 127 do not saturate.
                    _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(q, v))
                } else {
                    _mm256_maddubs_epi16(v, q)
                };
                words[c] = _mm256_add_epi16(words[c], product);
                if split {
                    high_words[c] = _mm256_add_epi16(high_words[c], _mm256_maddubs_epi16(high, q));
                    pin(&mut words[c]);
                    pin(&mut high_words[c]);
                }
            }
        }
        for c in 0..N {
            ints[c] = _mm256_add_epi32(ints[c], _mm256_madd_epi16(words[c], scale));
            if split {
                let sum = _mm256_madd_epi16(high_words[c], _mm256_slli_epi16::<4>(scale));
                ints[c] = _mm256_add_epi32(ints[c], sum);
            }
        }
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

/// Keeps the order of chunks: the compiler would take column after column, with more registers than there are.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pin(v: &mut __m256i) {
    // SAFETY: no instruction is in it.
    unsafe {
        std::arch::asm!(
            "/* {0} */",
            inout(ymm_reg) * v,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Ends a super-block of integer scales: their unit, and minima.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn finish<const N: usize>(
    kind: TileKind,
    tile: &Tile,
    n_groups: usize,
    scales: &[GroupScale],
    sums: [__m256; N],
    acc: &mut [__m256; N],
) {
    if !kind.int_scales {
        return;
    }
    let scales = &scales.as_chunks::<N>().0[..n_groups];
    let unit = load_rows(&tile.unit);
    for c in 0..N {
        acc[c] = _mm256_fmadd_ps(unit, sums[c], acc[c]);
    }
    match kind.mins {
        Minima::None => {}
        Minima::Float => {
            for (min, s) in tile.min.iter().zip(scales) {
                add_min(min, s, acc);
            }
        }
        Minima::Int => {
            let mut sums = [_mm256_setzero_ps(); N];
            for (min, s) in tile.int_min.iter().zip(scales) {
                let min = load_pairs(min);
                for c in 0..N {
                    let int = _mm256_cvtepi32_ps(_mm256_madd_epi16(min, pair(s[c].int)));
                    sums[c] = _mm256_fmadd_ps(int, _mm256_set1_ps(s[c].d), sums[c]);
                }
            }
            let unit = load_rows(&tile.min_unit);
            for c in 0..N {
                acc[c] = _mm256_fnmadd_ps(unit, sums[c], acc[c]);
            }
        }
    }
}

/// Chunks whose products, added in pairs, can be added in 16 bits: a power of two.
const fn steps(kind: TileKind, signed: bool) -> usize {
    let max = match (kind.wide(), signed) {
        (true, true) => 128,
        (true, false) => 15,
        (false, _) => kind.max as usize,
    };
    match i16::MAX as usize / (2 * 127 * max) {
        0 => 1,
        8.. => 8,
        n => 1 << n.ilog2(),
    }
}

#[inline]
pub(super) fn bytes(q: [i8; 4]) -> [u8; 4] {
    q.map(|q| q as u8)
}

/// The sums of both halves of a group for each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn pair([low, high]: [i16; 2]) -> __m256i {
    _mm256_set1_epi32(i32::from(high) << 16 | i32::from(low as u16))
}

/// Loads two small numbers for each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load_pairs(rows: &[[i16; 2]; ROWS]) -> __m256i {
    // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(rows.as_ptr().cast()) }
}

/// The work of [`super::prefetch`].
#[inline]
pub(super) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: the address is that of a byte of the slice, and a prefetch has no effect that can be seen.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}
