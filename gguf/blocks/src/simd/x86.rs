//! The operations with AVX2.

#![expect(
    unsafe_code,
    reason = "loads and stores through references, and entry into code compiled for AVX2"
)]

mod lattice;

use std::arch::x86_64::{
    __m256, _CMP_EQ_OQ, _CMP_GE_OQ, _CMP_GT_OQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT,
    _MM_FROUND_TO_ZERO, _mm256_add_ps, _mm256_and_ps, _mm256_and_si256, _mm256_andnot_ps, _mm256_blendv_ps,
    _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cvttps_epi32, _mm256_div_ps, _mm256_loadu_ps, _mm256_max_ps,
    _mm256_min_ps, _mm256_movemask_ps, _mm256_mul_ps, _mm256_or_ps, _mm256_packus_epi16, _mm256_packus_epi32,
    _mm256_permute2f128_ps, _mm256_permutevar8x32_epi32, _mm256_permutevar8x32_ps, _mm256_round_ps,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_shuffle_ps, _mm256_slli_epi32,
    _mm256_sqrt_ps, _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_ps, _mm256_unpackhi_ps,
    _mm256_unpacklo_ps, _mm256_xor_ps,
};
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Not, Sub};

use super::{Encode, LANES, Lanes, Simd};
use crate::Importance;
use crate::search::ROUNDER;
use crate::search::lattice::{Eight, Group, Terms, Tries};
use crate::search::ternary::Cuts;

/// Encodes a row at [`crate::Level::Avx2`].
pub(super) fn encode_row<E: Encode>(src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
    // SAFETY: only `encoder` hands this function out, for a `Cpu` that has AVX2.
    unsafe { encode_row_avx2::<E>(src, importance, out) }
}

#[target_feature(enable = "avx2")]
fn encode_row_avx2<E: Encode>(src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
    E::encode(Avx2(()), src, importance, out);
}

/// Proof that the machine has AVX2: only code that is compiled for it makes one. Numbers and masks come from it, so
/// they are proofs as well. The operations that need AVX2 are inlined into the encoder that was compiled for it.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

#[derive(Clone, Copy)]
pub(crate) struct Vector([__m256; 2]);

/// All bits of a lane are set or none.
#[derive(Clone, Copy)]
pub(crate) struct VectorMask([__m256; 2]);

/// The proof that it came from.
impl From<Vector> for Avx2 {
    #[inline(always)]
    fn from(_: Vector) -> Self {
        Self(())
    }
}

/// The proof that it came from.
impl From<VectorMask> for Avx2 {
    #[inline(always)]
    fn from(_: VectorMask) -> Self {
        Self(())
    }
}

/// Applies an intrinsic to both halves of the lanes.
macro_rules! halves {
    ($out:ident, $intrinsic:ident $([$const:ident])?, $($arg:expr),*) => {
        // SAFETY: `Avx2` and what comes from it exist only on machines that have AVX2.
        unsafe {
            $out([
                $intrinsic$(::<$const>)?($($arg[0]),*),
                $intrinsic$(::<$const>)?($($arg[1]),*),
            ])
        }
    };
}

impl Simd for Avx2 {
    type Lanes = Vector;

    #[inline(always)]
    fn splat(self, v: f32) -> Vector {
        let v = [v; 2];
        halves!(Vector, _mm256_set1_ps, v)
    }

    #[inline(always)]
    fn load(self, v: &[f32; LANES]) -> Vector {
        // SAFETY: `self` proves AVX2, the reference is to 64 readable bytes, and the loads need no alignment.
        unsafe {
            Vector([
                _mm256_loadu_ps(v.as_ptr()),
                _mm256_loadu_ps(v.as_ptr().add(LANES / 2)),
            ])
        }
    }

    #[inline(always)]
    fn transpose(self, rows: [&[f32; 8]; LANES]) -> [Vector; 8] {
        let [a, b, c, d, e, f, g, h, rest @ ..] = rows;
        let first = transpose8(self, [a, b, c, d, e, f, g, h]);
        let second = transpose8(self, rest);
        let mut out = [Vector([first[0]; 2]); 8];
        for i in 0..8 {
            out[i] = Vector([first[i], second[i]]);
        }
        out
    }

    #[inline(always)]
    fn low_bytes(self, v: [Vector; 2]) -> [u8; 32] {
        let mut out = [0; 32];
        // SAFETY: `self` proves AVX2; the store is to 32 writable bytes and needs no alignment.
        unsafe {
            let byte = _mm256_set1_epi32(255);
            let [Vector([a, b]), Vector([c, d])] = v;
            let (a, b) = (_mm256_cvttps_epi32(a), _mm256_cvttps_epi32(b));
            let (c, d) = (_mm256_cvttps_epi32(c), _mm256_cvttps_epi32(d));
            let words = [
                _mm256_packus_epi32(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte)),
                _mm256_packus_epi32(_mm256_and_si256(c, byte), _mm256_and_si256(d, byte)),
            ];
            // Packing works within halves of registers; the permutation puts the double words in order.
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words[0], words[1]), order);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), bytes);
        }
        out
    }

    #[inline(always)]
    fn look_up(self, table: &[f32; 16], index: Vector) -> Vector {
        let [low, high] = self.load(table).0;
        let mut out = index;
        for out in &mut out.0 {
            // SAFETY: `self` proves AVX2.
            unsafe {
                let index = _mm256_cvttps_epi32(*out);
                // Only the low three bits choose; the fourth becomes the sign that blends.
                let upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
                *out = _mm256_blendv_ps(
                    _mm256_permutevar8x32_ps(low, index),
                    _mm256_permutevar8x32_ps(high, index),
                    upper,
                );
            }
        }
        out
    }

    #[inline(always)]
    fn nearest<const N: usize, const C: usize>(self, terms: &Terms<N, C>, list: &[Eight]) -> u16 {
        // SAFETY: `self` proves AVX2.
        unsafe { lattice::nearest(terms, list) }
    }

    #[inline(always)]
    fn points<const N: usize, const C: usize>(self, group: &Group<'_, N, C>, tries: &mut Tries<N, C>) {
        // SAFETY: `self` proves AVX2.
        unsafe { lattice::points(group, tries) }
    }

    #[inline(always)]
    fn point_sums<const N: usize, const C: usize>(
        self,
        group: &Group<'_, N, C>,
        points: &[u32; 8],
        sums: &mut [[f32; 8]; 2],
    ) {
        // SAFETY: `self` proves AVX2.
        unsafe { lattice::point_sums(group, points, sums) }
    }

    #[inline(always)]
    fn better_cuts(self, cuts: &Cuts<'_>, score: f32) -> u32 {
        // SAFETY: `self` proves AVX2.
        unsafe { lattice::better_cuts(cuts, score) }
    }
}

/// Eight rows of eight.
#[inline(always)]
fn transpose8(_: Avx2, rows: [&[f32; 8]; 8]) -> [__m256; 8] {
    // SAFETY: `Avx2` proves AVX2; the references are to 32 readable bytes, and the loads need no alignment.
    unsafe {
        let mut v = [_mm256_set1_ps(0.0); 8];
        for j in 0..8 {
            v[j] = _mm256_loadu_ps(rows[j].as_ptr());
        }
        // Pairs of rows: elements 0, 1, 4 and 5 of rows `2 * j` and `2 * j + 1`, then the other elements.
        let mut pairs = v;
        for j in 0..4 {
            pairs[2 * j] = _mm256_unpacklo_ps(v[2 * j], v[2 * j + 1]);
            pairs[2 * j + 1] = _mm256_unpackhi_ps(v[2 * j], v[2 * j + 1]);
        }
        // Four rows: elements `i` and `i + 4`.
        let mut fours = v;
        for half in [0, 4] {
            for i in 0..2 {
                let (a, b) = (pairs[half + i], pairs[half + 2 + i]);
                fours[half + 2 * i] = _mm256_shuffle_ps::<0b01_00_01_00>(a, b);
                fours[half + 2 * i + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(a, b);
            }
        }
        let mut out = v;
        for i in 0..4 {
            out[i] = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
            out[i + 4] = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
        }
        out
    }
}

macro_rules! arithmetic {
    ($($op:ident $name:ident $intrinsic:ident)*) => { $(
        impl $op for Vector {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                let (a, b) = (self.0, other.0);
                halves!(Self, $intrinsic, a, b)
            }
        }
    )* };
}

arithmetic!(Add add _mm256_add_ps Sub sub _mm256_sub_ps Mul mul _mm256_mul_ps Div div _mm256_div_ps);

impl BitAnd for VectorMask {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        halves!(Self, _mm256_and_ps, a, b)
    }
}

impl BitOr for VectorMask {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        halves!(Self, _mm256_or_ps, a, b)
    }
}

impl Not for VectorMask {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        let a = self.0;
        let ones = Avx2::from(self).splat(f32::from_bits(u32::MAX)).0;
        halves!(Self, _mm256_xor_ps, a, ones)
    }
}

impl Lanes for Vector {
    type Mask = VectorMask;

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: `self` proves AVX2; the stores are to 64 writable bytes and need no alignment.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), self.0[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(LANES / 2), self.0[1]);
        }
        out
    }

    #[inline(always)]
    fn abs(self) -> Self {
        let (sign, a) = (Avx2::from(self).splat(-0.0).0, self.0);
        halves!(Self, _mm256_andnot_ps, sign, a)
    }

    #[inline(always)]
    fn neg(self) -> Self {
        let (sign, a) = (Avx2::from(self).splat(-0.0).0, self.0);
        halves!(Self, _mm256_xor_ps, sign, a)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        let a = self.0;
        halves!(Self, _mm256_sqrt_ps, a)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        halves!(Self, _mm256_max_ps, a, b)
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        halves!(Self, _mm256_min_ps, a, b)
    }

    #[inline(always)]
    fn round(self) -> Self {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        let a = self.0;
        halves!(Self, _mm256_round_ps[NEAREST], a)
    }

    #[inline(always)]
    fn nint(self) -> Self {
        let rounder = Avx2::from(self).splat(ROUNDER).0;
        let mantissa = Avx2::from(self).splat(f32::from_bits(0x007f_ffff)).0;
        let exponent = Avx2::from(self).splat(f32::from_bits(0x4b00_0000)).0;
        let a = (self + Self(rounder)).0;
        let a = halves!(Self, _mm256_and_ps, a, mantissa).0;
        halves!(Self, _mm256_or_ps, a, exponent) - Self(rounder)
    }

    #[inline(always)]
    fn trunc(self) -> Self {
        const TO_ZERO: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
        let a = self.0;
        halves!(Self, _mm256_round_ps[TO_ZERO], a)
    }

    #[inline(always)]
    fn gt(self, other: Self) -> VectorMask {
        let (a, b) = (self.0, other.0);
        halves!(VectorMask, _mm256_cmp_ps[_CMP_GT_OQ], a, b)
    }

    #[inline(always)]
    fn ge(self, other: Self) -> VectorMask {
        let (a, b) = (self.0, other.0);
        halves!(VectorMask, _mm256_cmp_ps[_CMP_GE_OQ], a, b)
    }

    #[inline(always)]
    fn same(self, other: Self) -> VectorMask {
        let (a, b) = (self.0, other.0);
        halves!(VectorMask, _mm256_cmp_ps[_CMP_EQ_OQ], a, b)
    }

    #[inline(always)]
    fn select(mask: VectorMask, yes: Self, no: Self) -> Self {
        let (mask, yes, no) = (mask.0, yes.0, no.0);
        halves!(Self, _mm256_blendv_ps, no, yes, mask)
    }

    #[inline(always)]
    fn bits(mask: VectorMask) -> u32 {
        // SAFETY: `mask` proves AVX2.
        unsafe { (_mm256_movemask_ps(mask.0[0]) | _mm256_movemask_ps(mask.0[1]) << 8) as u32 }
    }
}
