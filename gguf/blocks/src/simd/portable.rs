//! The operations in plain Rust: what the others are compared with, and what encoders run where there are no others.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Not, Sub};

use super::{LANES, Lanes, Simd};
use crate::search::nint;

/// The level of any machine.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[derive(Clone, Copy)]
pub(crate) struct Array([f32; LANES]);

/// All bits of a lane are set or none.
#[derive(Clone, Copy)]
pub(crate) struct ArrayMask([u32; LANES]);

/// A loop over lanes, which is compiled into its caller as that of arrays may not be.
#[inline(always)]
fn each<A: Copy, T: Copy + Default>(a: [A; LANES], f: impl Fn(A) -> T) -> [T; LANES] {
    let mut out = [T::default(); LANES];
    for (out, a) in out.iter_mut().zip(a) {
        *out = f(a);
    }
    out
}

/// A loop over the lanes of two.
#[inline(always)]
fn both<A: Copy, B: Copy, T: Copy + Default>(
    a: [A; LANES],
    b: [B; LANES],
    f: impl Fn(A, B) -> T,
) -> [T; LANES] {
    let mut out = [T::default(); LANES];
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
    out
}

#[inline(always)]
fn condition(holds: bool) -> u32 {
    if holds { u32::MAX } else { 0 }
}

/// Truncation to a whole number; what `i32` cannot hold gives its smallest value, as the x86 instruction does.
#[inline(always)]
fn truncate(v: f32) -> i32 {
    if v.abs() < 2_147_483_648.0 {
        v as i32
    } else {
        i32::MIN
    }
}

impl Simd for Portable {
    type Lanes = Array;

    #[inline(always)]
    fn splat(self, v: f32) -> Array {
        Array([v; LANES])
    }

    #[inline(always)]
    fn load(self, v: &[f32; LANES]) -> Array {
        Array(*v)
    }

    #[inline(always)]
    fn transpose(self, rows: [&[f32; 8]; LANES]) -> [Array; 8] {
        let mut out = [Array([0.0; LANES]); 8];
        for (j, row) in rows.into_iter().enumerate() {
            for (out, v) in out.iter_mut().zip(row) {
                out.0[j] = *v;
            }
        }
        out
    }

    #[inline(always)]
    fn low_bytes(self, v: [Array; 2]) -> [u8; 32] {
        let mut out = [0; 32];
        for (out, v) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(v) {
            *out = each(v.0, |v| truncate(v) as u8);
        }
        out
    }

    #[inline(always)]
    fn look_up(self, table: &[f32; 16], index: Array) -> Array {
        Array(each(index.0, |i| table[i as usize & 15]))
    }
}

macro_rules! arithmetic {
    ($($op:ident $name:ident $sign:tt)*) => { $(
        impl $op for Array {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                Self(both(self.0, other.0, |a, b| a $sign b))
            }
        }
    )* };
}

arithmetic!(Add add + Sub sub - Mul mul * Div div /);

impl BitAnd for ArrayMask {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(both(self.0, other.0, |a, b| a & b))
    }
}

impl BitOr for ArrayMask {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(both(self.0, other.0, |a, b| a | b))
    }
}

impl Not for ArrayMask {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        Self(each(self.0, |a| !a))
    }
}

impl Lanes for Array {
    type Mask = ArrayMask;

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        self.0
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(each(self.0, f32::abs))
    }

    #[inline(always)]
    fn neg(self) -> Self {
        Self(each(self.0, |v| -v))
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(each(self.0, f32::sqrt))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(both(self.0, other.0, |a, b| if a > b { a } else { b }))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self(both(self.0, other.0, |a, b| if a < b { a } else { b }))
    }

    #[inline(always)]
    fn round(self) -> Self {
        self.nint()
    }

    #[inline(always)]
    fn nint(self) -> Self {
        Self(each(self.0, nint))
    }

    #[inline(always)]
    fn trunc(self) -> Self {
        // From 2^23 on there is no fraction.
        Self(each(self.0, |v| {
            if v.abs() < 8_388_608.0 {
                truncate(v) as f32
            } else {
                v
            }
        }))
    }

    #[inline(always)]
    fn gt(self, other: Self) -> ArrayMask {
        ArrayMask(both(self.0, other.0, |a, b| condition(a > b)))
    }

    #[inline(always)]
    fn ge(self, other: Self) -> ArrayMask {
        ArrayMask(both(self.0, other.0, |a, b| condition(a >= b)))
    }

    #[inline(always)]
    fn same(self, other: Self) -> ArrayMask {
        ArrayMask(both(self.0, other.0, |a, b| condition(a == b)))
    }

    #[inline(always)]
    fn select(mask: ArrayMask, yes: Self, no: Self) -> Self {
        let chosen = both(yes.0, no.0, |y, n| (y.to_bits(), n.to_bits()));
        Self(both(mask.0, chosen, |m, (y, n)| f32::from_bits(m & y | !m & n)))
    }

    #[inline(always)]
    fn bits(mask: ArrayMask) -> u32 {
        mask.0.into_iter().rev().fold(0, |bits, m| bits << 1 | m & 1)
    }
}
