//! Integer products at level AVX2: one loop for every type, over the type's unpacking of eight rows.
//!
//! Four columns of all eight rows lie in a register. Unpacked values go from register to register where there is one
//! column ([`Dot`](super::Dot)), else through [`Tile`]s that are used for many columns; [`columns`] has the products of
//! both.

#![expect(
    unsafe_code,
    reason = "code compiled for AVX2, a trait of such code, and blocks by number"
)]

use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_add_epi8, _mm256_mullo_epi16, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_setzero_ps, _mm256_sign_epi8, _mm256_xor_si256,
};
use std::marker::PhantomData;

use self::columns::{CHUNKS, Single, add_group, add_signed_group, finish};
use super::{Columns, IntBlock, IntKernel, LINE, blocks, check_columns, each, n_columns};
use crate::activation::GroupScale;
use crate::tile::{GROUP, MAX_GROUPS, ROWS, Spread, Tile};
use crate::x86::{load_rows, prefetch_next, store, store_pairs, store_rows};

mod by_rows;
pub(super) mod columns;

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
    /// What is to be read next, for the caches.
    ahead: *const u8,
    /// Sums in the unit of the super-block.
    sum: __m256,
    acc: __m256,
    block: PhantomData<B>,
}

/// The kernels of a type.
pub(super) fn kernel<B: Unpack>() -> IntKernel {
    const {
        assert!(
            !B::KIND.int_scales || B::GROUPS == MAX_GROUPS,
            "a tile is a super-block"
        );
    };
    IntKernel {
        kind: B::KIND,
        // SAFETY: `super::kernel` hands these out for a `Cpu` that has the level.
        unpack: |rows, first, tile| unsafe { unpack::<B>(rows, first, tile) },
        // SAFETY: as above.
        dot: |rows, ahead, x, tile, acc| unsafe { dot::<B>(rows, ahead, x, tile, acc) },
        // SAFETY: as above.
        multiply: |tiles, x, spread, acc| unsafe { multiply::<B>(tiles, x, spread, acc) },
        together: 32,
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<B: Unpack>(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile) {
    let blocks = blocks::<B>(rows, first_group, tile.n_groups());
    let mut target = Target::<B, false>::new(tile);
    for b in 0..blocks[0].len() {
        // SAFETY: all rows have as many blocks, and this code is compiled for the same features.
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
    target.ahead = if ahead.is_empty() { rows[0] } else { ahead }.as_ptr();
    let q = x.q.as_chunks::<GROUP>().0.chunks_exact(B::GROUPS);
    for (b, (q, scales)) in q.zip(x.scales.chunks_exact(B::GROUPS)).enumerate() {
        (target.x, target.scales) = (q, scales);
        // SAFETY: all rows have the blocks of `n_groups` groups, and this code is compiled for the same features.
        unsafe { B::unpack(nth(blocks, b), 0, &mut target) };
        target.finish();
    }
    store_rows(acc, target.acc);
}

/// Block `i` of each row.
///
/// # Safety
/// All rows have it.
// Without checks, which for small blocks take longer than their products.
#[inline(always)]
unsafe fn nth<B>(rows: [&[B]; ROWS], i: usize) -> [&B; ROWS] {
    // SAFETY: the caller's.
    each(rows, |row| unsafe { row.get_unchecked(i) })
}

#[target_feature(enable = "avx2,fma,f16c")]
fn multiply<B: Unpack>(tiles: &[Tile], x: Columns<'_>, spread: &mut Spread, acc: &mut [[f32; ROWS]]) {
    match n_columns(tiles, &x, acc) {
        0 => {}
        1 => columns::<B, 1>(tiles, x, spread, acc),
        2 => columns::<B, 2>(tiles, x, spread, acc),
        _ => columns::<B, 4>(tiles, x, spread, acc),
    }
}

/// `N` columns, which all tiles share.
#[target_feature(enable = "avx2,fma,f16c")]
fn columns<B: Unpack, const N: usize>(
    tiles: &[Tile],
    x: Columns<'_>,
    spread: &mut Spread,
    acc: &mut [[f32; ROWS]],
) {
    columns::spread::<N>(B::KIND, B::KIND.wide(), x, spread);
    for (tile, acc) in tiles.iter().zip(acc.chunks_exact_mut(N)) {
        columns::multiply::<B, N>(tile, spread, acc);
    }
}

impl<'a, B: IntBlock, const DOT: bool> Target<'a, B, DOT> {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn new(tile: &'a mut Tile) -> Self {
        Self {
            tile,
            x: &[],
            scales: &[],
            ahead: std::ptr::null(),
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
        self.store_scales(group, low, high);
        if B::KIND.offset > 0 {
            let offset = _mm256_set1_epi16(-i16::from(B::KIND.offset));
            let both = crate::x86::pair(low, high);
            store_pairs(&mut self.tile.lower[group], _mm256_mullo_epi16(both, offset));
        }
    }

    /// Integer scales of a group as [`Self::set_int_scales`] takes them, for [`Self::signed_group`].
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn set_signed_scales(&mut self, group: usize, low: __m256i, high: __m256i) {
        if DOT {
            // Nothing has to be lowered in the product of signed values.
            self.store_scales(group, low, high);
        } else {
            self.set_int_scales(group, low, high);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn store_scales(&mut self, group: usize, low: __m256i, high: __m256i) {
        store_pairs(&mut self.tile.int_scale[group][0], low);
        if B::KIND.halves {
            store_pairs(&mut self.tile.int_scale[group][1], high);
        }
    }

    /// The values of a group without the offset: `two(k)` gives the magnitudes of chunks `2 * k` and `2 * k + 1` of four
    /// columns, and bytes above, below or at zero as their signs.
    // A product gives the signs to the column, which takes no longer than adding the offset, and smaller numbers can be
    // added oftener in 16 bits.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn signed_group(&mut self, group: usize, two: impl Fn(usize) -> [[__m256i; 2]; 2]) {
        const { assert!(B::KIND.int_scales && B::KIND.max - B::KIND.offset <= 64) };
        if !DOT {
            let out = self.tile.v[group].as_chunks_mut::<64>().0;
            for (k, out) in out.iter_mut().enumerate() {
                let [v, signs] = two(k);
                for (i, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                    let signed = _mm256_sign_epi8(v[i], signs[i]);
                    store(
                        out,
                        _mm256_add_epi8(signed, _mm256_set1_epi8(B::KIND.offset as i8)),
                    );
                }
            }
            return;
        }
        self.prefetch();
        let x = self.column(group);
        self.sum = add_signed_group(const { B::KIND }, self.tile, group, two, x, self.sum);
    }

    /// Asks for a group's share of the block, in whole bytes for every type.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn prefetch(&mut self) {
        self.ahead = prefetch_next(self.ahead, size_of::<B>().div_ceil(B::GROUPS));
    }

    /// The values of a group: a register for each four columns. Those of wide kinds come signed, without the offset.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn group(&mut self, group: usize, v: [__m256i; CHUNKS]) {
        if !DOT {
            for (chunk, v) in v.into_iter().enumerate() {
                self.store_values(group, chunk, v);
            }
            return;
        }
        self.prefetch();
        let x = self.column(group);
        let mut sums = [if B::KIND.int_scales { self.sum } else { self.acc }];
        add_group::<B, 1, _>(self.tile, group, |chunk| v[chunk], x, &mut sums);
        if B::KIND.int_scales {
            self.sum = sums[0];
        } else {
            self.acc = sums[0];
        }
    }

    /// Values `4 * chunk ..` of a group, for the tile.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn store_values(&mut self, group: usize, chunk: usize, v: __m256i) {
        let offset = if B::KIND.wide() { i8::MIN } else { 0 };
        let out = &mut self.tile.v[group].as_chunks_mut::<32>().0[chunk];
        store(out, _mm256_xor_si256(v, _mm256_set1_epi8(offset)));
    }

    /// The group of the column.
    #[inline]
    fn column(&self, group: usize) -> Single<'a> {
        Single {
            q: &self.x[group],
            s: &self.scales[group],
        }
    }

    /// Ends a block whose groups have been multiplied.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn finish(&mut self) {
        let mut acc = [self.acc];
        let (q, scales) = (&self.x[..B::GROUPS], &self.scales[..B::GROUPS]);
        let x = |g| Single {
            q: &q[g],
            s: &scales[g],
        };
        let kind = const { B::KIND };
        finish::<1, _>(kind, self.tile, B::GROUPS, x, [self.sum], &mut acc);
        (self.acc, self.sum) = (acc[0], _mm256_setzero_ps());
    }
}

/// The work of [`super::prefetch`].
#[inline]
pub(super) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        // SAFETY: the address is that of a byte of the slice, and a prefetch has no effect that can be seen.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}
