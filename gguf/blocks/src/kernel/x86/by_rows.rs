//! Products with one column, row by row: values lie as in the rows and are multiplied with the column straight from
//! memory, and sums of neighbours are added until a register holds those of eight rows.
//!
//! That takes fewer instructions than to transpose the rows, which serves many columns only. The whole sums of a group
//! are the same, and so is all that is made of them.

#![expect(
    unsafe_code,
    reason = "calls of code compiled for AVX2 through a trait; instructions and marks in assembly"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "iterators over arrays would call code that is not compiled for AVX2"
)]

use std::arch::x86_64::{
    __m256i, _mm_unpacklo_epi8, _mm256_add_epi32, _mm256_blend_epi16, _mm256_broadcastsi128_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mullo_epi32, _mm256_permute2x128_si256,
    _mm256_permute4x64_epi64, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_setr_epi8, _mm256_setr_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srai_epi32, _mm256_srlv_epi64, _mm256_sub_epi16,
};

use zerocopy::transmute_ref;

use super::Target;
use super::columns::{load_pairs, scale_floats, scale_ints, scale_lowered, twos};
use crate::activation::GROUP;
use crate::kernel::IntBlock;
use crate::tile::{ROWS, TileKind};
use crate::x86::{columns, eight, load8, load16, load32, low_nibbles, nibbles};

/// How many products of bytes are added in 16 bits.
#[derive(Clone, Copy)]
enum Reach {
    Two,
    Four,
    Eight,
    /// The 16 of half a group.
    Half,
}

const fn reach(kind: TileKind) -> Reach {
    if kind.wide() {
        return Reach::Two;
    }
    match i16::MAX as usize / (127 * kind.max as usize) {
        0..4 => panic!("values above 64 that are not wide"),
        4..8 => Reach::Four,
        8..16 => Reach::Eight,
        _ => Reach::Half,
    }
}

impl<B: IntBlock, const DOT: bool> Target<'_, B, DOT> {
    /// The values of `N` groups from `group` on: `pieces` are the bytes of a row that hold them, and `values` makes a
    /// register for each group of a register of each. Those of wide kinds come signed, without the offset.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn groups<const M: usize, const N: usize>(
        &mut self,
        group: usize,
        rows: [&B; ROWS],
        pieces: impl Fn(&B) -> [&[u8; GROUP]; M],
        values: impl Fn([__m256i; M]) -> [__m256i; N],
    ) {
        if DOT {
            self.add_groups(group, |r| values(load_each(pieces(rows[r]))));
        } else {
            self.store_groups(group, rows, pieces, values);
        }
    }

    /// Gives the tile what [`Self::groups`] is given.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn store_groups<const M: usize, const N: usize>(
        &mut self,
        group: usize,
        rows: [&B; ROWS],
        pieces: impl Fn(&B) -> [&[u8; GROUP]; M],
        values: impl Fn([__m256i; M]) -> [__m256i; N],
    ) {
        let mut transposed = [[_mm256_setzero_si256(); ROWS]; M];
        for m in 0..M {
            let half = |i: usize| columns(rows, |b| &pieces(b)[m].as_chunks::<16>().0[i]);
            transposed[m] = eight(half(0), half(1));
        }
        for i in 0..ROWS {
            let mut piece = [_mm256_setzero_si256(); M];
            for m in 0..M {
                piece[m] = transposed[m][i];
            }
            let v = values(piece);
            for k in 0..N {
                self.store_values(group + k, i, v[k]);
            }
        }
    }

    /// The values of a group whose low nibbles are the first 16 numbers of a row and whose high ones the others: `values`
    /// is given numbers below 16.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn nibble_group(
        &mut self,
        group: usize,
        rows: [&B; ROWS],
        piece: impl Fn(&B) -> &[u8; GROUP / 2],
        values: impl Fn(__m256i) -> __m256i,
    ) {
        if DOT {
            let both = |r: usize| {
                let bytes = _mm256_broadcastsi128_si256(load16(piece(rows[r])));
                low_nibbles(_mm256_srlv_epi64(bytes, _mm256_setr_epi64x(0, 0, 4, 4)))
            };
            return self.add_groups(group, |r| [values(both(r))]);
        }
        let v = nibbles(columns(rows, piece));
        for i in 0..ROWS {
            self.store_values(group, i, values(v[i]));
        }
    }

    /// Adds the products of `N` groups from `group` on with the column: `row` gives their values in a row.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add_groups<const N: usize>(&mut self, group: usize, row: impl Fn(usize) -> [__m256i; N]) {
        const { assert!(matches!(N, 1 | 2 | 4)) };
        if N == 1 {
            return self.add_some::<1, 0, N>(group, &row);
        }
        // Of more groups at a time sums would not stay in registers; what is read again lies near.
        self.add_some::<2, 0, N>(group, &row);
        if N == 4 {
            self.add_some::<2, 2, N>(group, &row);
        }
    }

    /// Adds `C` of these groups, of which the first is number `FIRST`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add_some<const C: usize, const FIRST: usize, const N: usize>(
        &mut self,
        group: usize,
        row: &impl Fn(usize) -> [__m256i; N],
    ) {
        let x: &[[i8; GROUP]; C] = self.x[group + FIRST..]
            .first_chunk()
            .expect("the block has the groups");
        let one = |r: usize| {
            let v = row(r);
            let mut sums = [_mm256_setzero_si256(); C];
            for k in 0..C {
                let x = load32(transmute_ref!(&x[k]));
                sums[k] = keep(products(const { B::KIND }, v[FIRST + k], x));
            }
            sums
        };
        let both = |a: [__m256i; C], b: [__m256i; C]| {
            let mut sums = [_mm256_setzero_si256(); C];
            for k in 0..C {
                sums[k] = match const { reach(B::KIND) } {
                    Reach::Two => add_dwords(a[k], b[k]),
                    _ => add_words(a[k], b[k]),
                };
            }
            sums
        };
        let four = |r: usize| both(both(one(r), one(r + 1)), both(one(r + 2), one(r + 3)));
        let (low, high) = (four(0), four(4));
        for k in 0..C {
            self.prefetch();
            self.end_group(group + FIRST + k, low[k], high[k]);
        }
    }

    /// [`Self::groups`] for four groups of values up to 63 with the offset 32 and 8-bit scales for halves: `scales` are
    /// those of a row in turn. For a product with one column the tile needs none.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn four_groups<const M: usize>(
        &mut self,
        group: usize,
        rows: [&B; ROWS],
        pieces: impl Fn(&B) -> [&[u8; GROUP]; M],
        values: impl Fn([__m256i; M]) -> [__m256i; 4],
        scales: impl Fn(&B) -> &[u8; 8],
    ) {
        if !DOT {
            return self.store_groups(group, rows, pieces, values);
        }
        const {
            // Sums of four products fit into 16 bits, and those of a half with their scale times 256 into 32.
            let kind = B::KIND;
            assert!(kind.int_scales && kind.halves && kind.max == 63 && kind.offset == 32);
        };
        let x: &[[i8; GROUP]; 4] = self.x[group..].first_chunk().expect("the block has the groups");
        let row = |r: usize| values(load_each(pieces(rows[r])));
        let scales = |p: usize| {
            let [a, b] = [0, 1].map(|i| load8(*scales(rows[2 * p + i])));
            _mm256_broadcastsi128_si256(_mm_unpacklo_epi8(a, b))
        };
        // Groups whose bits lie in the same bytes, where there are such.
        let even = scaled::<0>(B::KIND.offset, x, &row, &scales);
        let odd = scaled::<1>(B::KIND.offset, x, &row, &scales);
        for (k, ints) in [even[0], odd[0], even[1], odd[1]].into_iter().enumerate() {
            self.prefetch();
            let mut sums = [self.sum];
            scale_lowered(self.column(group + k), [ints], &mut sums);
            [self.sum] = sums;
        }
    }

    /// Adds what a group gave for the first four rows and the others, in both lanes.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn end_group(&mut self, group: usize, low: __m256i, high: __m256i) {
        let kind = const {
            let kind = B::KIND;
            // Else both halves would get the scale of the first.
            assert!(!kind.halves || matches!(reach(kind), Reach::Half) && kind.int_scales);
            assert!(!matches!(reach(kind), Reach::Four), "for `four_groups`");
            kind
        };
        let scale = &self.tile.int_scale[group];
        let ints = match const { reach(B::KIND) } {
            Reach::Two => {
                let ints = add_lanes(low, high);
                if kind.int_scales {
                    _mm256_mullo_epi32(ints, _mm256_srai_epi32::<16>(load_pairs(&scale[0])))
                } else {
                    ints
                }
            }
            Reach::Half => {
                let scale = match (kind.int_scales, kind.halves) {
                    (true, true) => {
                        _mm256_blend_epi16::<0b1010_1010>(load_pairs(&scale[0]), load_pairs(&scale[1]))
                    }
                    (true, false) => load_pairs(&scale[0]),
                    (false, _) => _mm256_set1_epi16(1),
                };
                _mm256_madd_epi16(halves_of_rows(add_words(low, high)), scale)
            }
            Reach::Four | Reach::Eight => {
                let scale = |i: usize| {
                    if kind.int_scales {
                        _mm256_broadcastsi128_si256(load16(transmute_ref!(&scale[0].as_chunks::<4>().0[i])))
                    } else {
                        _mm256_set1_epi16(1)
                    }
                };
                add_lanes(
                    _mm256_madd_epi16(low, scale(0)),
                    _mm256_madd_epi16(high, scale(1)),
                )
            }
        };
        let x = self.column(group);
        if kind.int_scales {
            let mut sums = [self.sum];
            scale_ints::<B, 1, _>(self.tile, group, x, [ints], &mut sums);
            [self.sum] = sums;
        } else {
            let mut sums = [self.acc];
            scale_floats::<B, 1, _>(self.tile, group, 0, x, [ints], &mut sums);
            [self.acc] = sums;
        }
    }
}

/// The whole sums of groups `K` and `K + 2` of four, each with its scale and without the offset.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scaled<const K: usize>(
    offset: u8,
    x: &[[i8; GROUP]; 4],
    row: &impl Fn(usize) -> [__m256i; 4],
    scales: &impl Fn(usize) -> __m256i,
) -> [__m256i; 2] {
    let lower = [lower(offset, &x[K]), lower(offset, &x[K + 2])];
    let x = [load32(transmute_ref!(&x[K])), load32(transmute_ref!(&x[K + 2]))];
    let words = |r: usize| {
        let v = row(r);
        [
            keep(_mm256_maddubs_epi16(v[K], x[0])),
            keep(_mm256_maddubs_epi16(v[K + 2], x[1])),
        ]
    };
    let pair = |p: usize| {
        let (a, b, scales) = (words(2 * p), words(2 * p + 1), scales(p));
        let one = |k: usize| {
            let words = _mm256_sub_epi16(add_words(a[k], b[k]), lower[k]);
            keep(_mm256_madd_epi16(words, scales_of_pair(scales, K + 2 * k)))
        };
        [one(0), one(1)]
    };
    let four_rows = |p: usize| {
        let (a, b) = (pair(p), pair(p + 1));
        let one = |k: usize| keep(_mm256_srai_epi32::<8>(add_dwords(a[k], b[k])));
        [one(0), one(1)]
    };
    let (a, b) = (four_rows(0), four_rows(2));
    [add_lanes(a[0], b[0]), add_lanes(a[1], b[1])]
}

/// Sums of products of neighbours: of two in 16 bits, or of four in 32 for wide kinds.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn products(kind: TileKind, v: __m256i, x: __m256i) -> __m256i {
    let twos = twos(kind, v, x);
    if kind.wide() {
        _mm256_madd_epi16(twos, _mm256_set1_epi16(1))
    } else {
        twos
    }
}

/// Loads 32 bytes of each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_each<const M: usize>(pieces: [&[u8; GROUP]; M]) -> [__m256i; M] {
    let mut v = [_mm256_setzero_si256(); M];
    for m in 0..M {
        v[m] = load32(pieces[m]);
    }
    v
}

/// Words of eight rows in both lanes, one lane of each half: both of a row side by side.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves_of_rows(v: __m256i) -> __m256i {
    #[rustfmt::skip]
    let order = _mm256_setr_epi8(
        0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,
        0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,
    );
    _mm256_shuffle_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(v), order)
}

/// The sums of the lanes of both.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_lanes(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(
        _mm256_permute2x128_si256::<0x20>(a, b),
        _mm256_permute2x128_si256::<0x31>(a, b),
    )
}

/// An instruction for two registers.
macro_rules! instruction {
    ($name:ident, $instruction:literal, $what:literal) => {
        #[doc = $what]
        // In assembly: for the intrinsic the compiler takes five others.
        #[inline]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn $name(a: __m256i, b: __m256i) -> __m256i {
            let sums;
            // SAFETY: AVX2 has the instruction, which works on registers alone.
            unsafe {
                std::arch::asm!(
                    concat!($instruction, " {sums}, {a}, {b}"),
                    sums = lateout(ymm_reg) sums,
                    a = in(ymm_reg) a,
                    b = in(ymm_reg) b,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sums
        }
    };
}

instruction!(
    add_words,
    "vphaddw",
    "Sums of neighbours in 16 bits: those of `a` and then of `b`, in each lane."
);
instruction!(
    add_dwords,
    "vphaddd",
    "Sums of neighbours in 32 bits: those of `a` and then of `b`, in each lane."
);

/// Keeps the order of rows: the compiler would take several together, with more registers than there are.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn keep(mut v: __m256i) -> __m256i {
    // SAFETY: no instruction is in it.
    unsafe {
        std::arch::asm!("/* {0} */", inout(ymm_reg) v, options(nomem, nostack, preserves_flags));
    }
    v
}

/// `offset` times the sums of each four values of a group, which are those of a half, in both halves of a lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn lower(offset: u8, x: &[i8; GROUP]) -> __m256i {
    let twos = _mm256_maddubs_epi16(_mm256_set1_epi8(offset as i8), load32(transmute_ref!(x)));
    add_words(twos, twos)
}

/// The scales of the halves of group `k` times 256 from those of two rows in turn, in both lanes: four times that of the first
/// half for each row in the low lane, those of the second in the high one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scales_of_pair(scales: __m256i, k: usize) -> __m256i {
    let at = |i: i8| 4 * k as i8 + i;
    let (a, b, c, d) = (at(0), at(1), at(2), at(3));
    let none = i8::MIN;
    #[rustfmt::skip]
    let order = _mm256_setr_epi8(
        none, a, none, a, none, a, none, a, none, b, none, b, none, b, none, b,
        none, c, none, c, none, c, none, c, none, d, none, d, none, d, none, d,
    );
    _mm256_shuffle_epi8(scales, order)
}
