//! The operations with what every x86-64 has, SSE2. The compiler would make the same of plain arrays, in minutes
//! instead of seconds.

#![expect(
    unsafe_code,
    reason = "loads and stores through references, and calls of code compiled for SSE2"
)]

use std::arch::x86_64::{
    __m128, __m128i, _mm_add_ps, _mm_and_ps, _mm_and_si128, _mm_andnot_ps, _mm_castsi128_ps, _mm_cmpeq_ps,
    _mm_cmpge_ps, _mm_cmpgt_ps, _mm_cvtepi32_ps, _mm_cvttps_epi32, _mm_div_ps, _mm_loadu_ps, _mm_max_ps,
    _mm_min_ps, _mm_movehl_ps, _mm_movelh_ps, _mm_movemask_ps, _mm_mul_ps, _mm_or_ps, _mm_packs_epi32,
    _mm_packus_epi16, _mm_set1_epi32, _mm_set1_ps, _mm_sqrt_ps, _mm_storeu_ps, _mm_storeu_si128, _mm_sub_ps,
    _mm_unpackhi_ps, _mm_unpacklo_ps, _mm_xor_ps,
};
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Not, Sub};

use super::{LANES, Lanes, Simd};
use crate::search::ROUNDER;

/// The level of any x86-64.
#[derive(Clone, Copy)]
pub(crate) struct Sse2;

#[derive(Clone, Copy)]
pub(crate) struct Vector([__m128; 4]);

/// All bits of a lane are set or none.
#[derive(Clone, Copy)]
pub(crate) struct VectorMask([__m128; 4]);

/// Applies an operation to all quarters of the lanes.
macro_rules! quarters {
    ($out:ident, $op:ident, $($arg:expr),*) => {
        // SAFETY: every x86-64 has SSE2.
        unsafe {
            $out([
                $op($($arg[0]),*),
                $op($($arg[1]),*),
                $op($($arg[2]),*),
                $op($($arg[3]),*),
            ])
        }
    };
}

#[inline]
#[target_feature(enable = "sse2")]
fn load4(v: &[f32; 4]) -> __m128 {
    // SAFETY: the reference is to 16 readable bytes, and the load needs no alignment.
    unsafe { _mm_loadu_ps(v.as_ptr()) }
}

/// The same bits in four lanes.
#[inline]
#[target_feature(enable = "sse2")]
fn constant(bits: u32) -> __m128 {
    _mm_castsi128_ps(_mm_set1_epi32(bits as i32))
}

/// The same bits in every lane.
#[inline(always)]
fn everywhere(bits: u32) -> [__m128; 4] {
    // SAFETY: every x86-64 has SSE2.
    [unsafe { constant(bits) }; 4]
}

impl Simd for Sse2 {
    type Lanes = Vector;

    #[inline(always)]
    fn splat(self, v: f32) -> Vector {
        // SAFETY: every x86-64 has SSE2.
        Vector([unsafe { _mm_set1_ps(v) }; 4])
    }

    #[inline(always)]
    fn load(self, v: &[f32; LANES]) -> Vector {
        let v = v.as_chunks::<4>().0;
        quarters!(Vector, load4, [&v[0], &v[1], &v[2], &v[3]])
    }

    #[inline(always)]
    fn transpose(self, rows: [&[f32; 8]; LANES]) -> [Vector; 8] {
        let mut out = [self.splat(0.0); 8];
        for (q, rows) in rows.as_chunks::<4>().0.iter().enumerate() {
            for half in 0..2 {
                // SAFETY: every x86-64 has SSE2.
                let columns = unsafe { transpose4(*rows, half) };
                for (i, column) in columns.into_iter().enumerate() {
                    out[4 * half + i].0[q] = column;
                }
            }
        }
        out
    }

    #[inline(always)]
    fn low_bytes(self, v: [Vector; 2]) -> [u8; 32] {
        let mut out = [0; 32];
        for (out, Vector(v)) in out.as_chunks_mut::<16>().0.iter_mut().zip(v) {
            // SAFETY: every x86-64 has SSE2; the store is to 16 writable bytes and needs no alignment.
            unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), low_bytes16(v)) };
        }
        out
    }

    #[inline(always)]
    fn look_up(self, table: &[f32; 16], index: Vector) -> Vector {
        let mut out = index.to_array();
        for v in &mut out {
            *v = table[*v as usize & 15];
        }
        self.load(&out)
    }
}

/// The low eight bits of truncated numbers.
#[inline]
#[target_feature(enable = "sse2")]
fn low_bytes16([a, b, c, d]: [__m128; 4]) -> __m128i {
    let byte = _mm_set1_epi32(255);
    let (a, b) = (_mm_cvttps_epi32(a), _mm_cvttps_epi32(b));
    let (c, d) = (_mm_cvttps_epi32(c), _mm_cvttps_epi32(d));
    let low = _mm_packs_epi32(_mm_and_si128(a, byte), _mm_and_si128(b, byte));
    let high = _mm_packs_epi32(_mm_and_si128(c, byte), _mm_and_si128(d, byte));
    _mm_packus_epi16(low, high)
}

/// The elements `4 * half ..` of four rows.
#[inline]
#[target_feature(enable = "sse2")]
fn transpose4([a, b, c, d]: [&[f32; 8]; 4], half: usize) -> [__m128; 4] {
    let (a, b) = (load4(&a.as_chunks().0[half]), load4(&b.as_chunks().0[half]));
    let (c, d) = (load4(&c.as_chunks().0[half]), load4(&d.as_chunks().0[half]));
    let (ab, cd) = (_mm_unpacklo_ps(a, b), _mm_unpacklo_ps(c, d));
    let (upper_ab, upper_cd) = (_mm_unpackhi_ps(a, b), _mm_unpackhi_ps(c, d));
    [
        _mm_movelh_ps(ab, cd),
        _mm_movehl_ps(cd, ab),
        _mm_movelh_ps(upper_ab, upper_cd),
        _mm_movehl_ps(upper_cd, upper_ab),
    ]
}

macro_rules! operators {
    ($type:ident: $($op:ident $name:ident $intrinsic:ident)*) => { $(
        impl $op for $type {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                let (a, b) = (self.0, other.0);
                quarters!(Self, $intrinsic, a, b)
            }
        }
    )* };
}

operators!(Vector: Add add _mm_add_ps Sub sub _mm_sub_ps Mul mul _mm_mul_ps Div div _mm_div_ps);
operators!(VectorMask: BitAnd bitand _mm_and_ps BitOr bitor _mm_or_ps);

impl Not for VectorMask {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        let (a, ones) = (self.0, everywhere(u32::MAX));
        quarters!(Self, _mm_xor_ps, a, ones)
    }
}

/// Rounds as [`crate::search::nint`].
#[inline]
#[target_feature(enable = "sse2")]
fn nint4(v: __m128) -> __m128 {
    let rounder = _mm_set1_ps(ROUNDER);
    let mantissa = _mm_and_ps(_mm_add_ps(v, rounder), constant(0x007f_ffff));
    _mm_sub_ps(_mm_or_ps(mantissa, constant(0x4b00_0000)), rounder)
}

/// Truncates; from 2^23 on there is no fraction.
#[inline]
#[target_feature(enable = "sse2")]
fn trunc4(v: __m128) -> __m128 {
    let whole = _mm_cvtepi32_ps(_mm_cvttps_epi32(v));
    let small = _mm_cmpgt_ps(constant(0x4b00_0000), _mm_and_ps(v, constant(0x7fff_ffff)));
    select4(small, whole, v)
}

#[inline]
#[target_feature(enable = "sse2")]
fn select4(mask: __m128, yes: __m128, no: __m128) -> __m128 {
    _mm_or_ps(_mm_and_ps(mask, yes), _mm_andnot_ps(mask, no))
}

impl Lanes for Vector {
    type Mask = VectorMask;

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        for (out, v) in out.as_chunks_mut::<4>().0.iter_mut().zip(self.0) {
            // SAFETY: every x86-64 has SSE2; the store is to 16 writable bytes and needs no alignment.
            unsafe { _mm_storeu_ps(out.as_mut_ptr(), v) };
        }
        out
    }

    #[inline(always)]
    fn abs(self) -> Self {
        let (a, magnitude) = (self.0, everywhere(0x7fff_ffff));
        quarters!(Self, _mm_and_ps, a, magnitude)
    }

    #[inline(always)]
    fn neg(self) -> Self {
        let (a, sign) = (self.0, everywhere(0x8000_0000));
        quarters!(Self, _mm_xor_ps, a, sign)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        let a = self.0;
        quarters!(Self, _mm_sqrt_ps, a)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        quarters!(Self, _mm_max_ps, a, b)
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        quarters!(Self, _mm_min_ps, a, b)
    }

    #[inline(always)]
    fn round(self) -> Self {
        self.nint()
    }

    #[inline(always)]
    fn nint(self) -> Self {
        let a = self.0;
        quarters!(Self, nint4, a)
    }

    #[inline(always)]
    fn trunc(self) -> Self {
        let a = self.0;
        quarters!(Self, trunc4, a)
    }

    #[inline(always)]
    fn gt(self, other: Self) -> VectorMask {
        let (a, b) = (self.0, other.0);
        quarters!(VectorMask, _mm_cmpgt_ps, a, b)
    }

    #[inline(always)]
    fn ge(self, other: Self) -> VectorMask {
        let (a, b) = (self.0, other.0);
        quarters!(VectorMask, _mm_cmpge_ps, a, b)
    }

    #[inline(always)]
    fn same(self, other: Self) -> VectorMask {
        let (a, b) = (self.0, other.0);
        quarters!(VectorMask, _mm_cmpeq_ps, a, b)
    }

    #[inline(always)]
    fn select(mask: VectorMask, yes: Self, no: Self) -> Self {
        let (mask, yes, no) = (mask.0, yes.0, no.0);
        quarters!(Self, select4, mask, yes, no)
    }

    #[inline(always)]
    fn bits(mask: VectorMask) -> u32 {
        let mut bits = 0;
        for (q, mask) in mask.0.into_iter().enumerate() {
            // SAFETY: every x86-64 has SSE2.
            bits |= (unsafe { _mm_movemask_ps(mask) } as u32) << (4 * q);
        }
        bits
    }
}
