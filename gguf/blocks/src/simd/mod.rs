//! What encoders are compiled for: the operations of each instruction set level behind one trait.
//!
//! An encoder is one generic body, an [`Encode`], that [`encoder`] compiles for each level. Its arithmetic is written
//! with [`Lanes`], sixteen f32 side by side, or as plain loops, which the compiler makes vector instructions of the
//! level from. Each operation is IEEE single precision rounded on its own, so every level gives the same bits, and
//! AVX2 code is compiled without FMA. Where a zero comes from may decide about its sign, so nothing may depend on that.
//!
//! Everything on the way from `encode` to the arithmetic must be `#[inline(always)]`: what is a call of its own is
//! compiled for the lowest level.

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_sse2;

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Not, Sub};

use crate::search::lattice::{self, Eight, Group, Terms, Tries};
use crate::search::ternary::Cuts;
use crate::{Cpu, EncodeRow, Importance};

/// The operations of [`crate::Level::Portable`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::Portable as Baseline;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_sse2::Sse2 as Baseline;

/// Numbers that stand side by side.
pub(crate) const LANES: usize = 16;

/// An encoder of rows, compiled for each level.
pub(crate) trait Encode {
    /// Encodes one row, as [`EncodeRow`] says. To be `#[inline(always)]`.
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]);
}

/// The encoder `E` for the level of `cpu`.
pub(crate) fn encoder<E: Encode>(cpu: Cpu) -> EncodeRow {
    match cpu.level().base() {
        #[cfg(target_arch = "x86_64")]
        crate::Level::Avx2 => x86::encode_row::<E>,
        _ => |src, importance, out| E::encode(Baseline, src, importance, out),
    }
}

/// A level: proof that the machine has it, and what makes [`Lanes`].
pub(crate) trait Simd: Copy {
    /// Sixteen numbers.
    type Lanes: Lanes;

    /// The same number in every lane.
    fn splat(self, v: f32) -> Self::Lanes;

    /// One number for each lane.
    fn load(self, v: &[f32; LANES]) -> Self::Lanes;

    /// Element `i` of row `j` in lane `j` of the result's element `i`.
    fn transpose(self, rows: [&[f32; 8]; LANES]) -> [Self::Lanes; 8];

    /// The low eight bits of the numbers, truncated to whole ones; 0 for what a 32-bit whole number cannot hold.
    fn low_bytes(self, v: [Self::Lanes; 2]) -> [u8; 32];

    /// For each lane, element `index` of the table; `index` holds whole numbers `0..=15`.
    fn look_up(self, table: &[f32; 16], index: Self::Lanes) -> Self::Lanes;

    /// As [`crate::search::lattice::nearest`].
    #[inline(always)]
    fn nearest<const N: usize, const C: usize>(self, terms: &Terms<N, C>, list: &[Eight]) -> u16 {
        lattice::nearest(terms, list)
    }

    /// As [`Group::plain_points`].
    #[inline(always)]
    fn points<const N: usize, const C: usize>(self, group: &Group<'_, N, C>, tries: &mut Tries<N, C>) {
        group.plain_points(tries);
    }

    /// As [`Group::plain_sums`].
    #[inline(always)]
    fn point_sums<const N: usize, const C: usize>(
        self,
        group: &Group<'_, N, C>,
        points: &[u32; 8],
        sums: &mut [[f32; 8]; 2],
    ) {
        group.plain_sums(points, sums);
    }

    /// As [`Cuts::plain_better`].
    #[inline(always)]
    fn better_cuts(self, cuts: &Cuts<'_>, score: f32) -> u32 {
        cuts.plain_better(score)
    }
}

/// Sixteen f32. Comparisons are false for NaN.
pub(crate) trait Lanes:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// A condition for each lane.
    type Mask: Copy + BitAnd<Output = Self::Mask> + BitOr<Output = Self::Mask> + Not<Output = Self::Mask>;

    /// The numbers.
    fn to_array(self) -> [f32; LANES];

    /// Magnitudes.
    fn abs(self) -> Self;

    /// The opposite numbers.
    fn neg(self) -> Self;

    /// Square roots.
    fn sqrt(self) -> Self;

    /// The larger numbers; those of `other` where one is NaN or both are zero.
    fn max(self, other: Self) -> Self;

    /// The smaller numbers; those of `other` where one is NaN or both are zero.
    fn min(self, other: Self) -> Self;

    /// The nearest whole numbers, ties to even, for magnitudes up to 4194303; some number for others, and a zero
    /// of either sign.
    fn round(self) -> Self;

    /// As [`crate::search::nint`], for any number.
    fn nint(self) -> Self;

    /// Whole numbers towards zero; itself where the number is infinite or NaN. A zero is of either sign.
    fn trunc(self) -> Self;

    /// Where this is greater.
    fn gt(self, other: Self) -> Self::Mask;

    /// Where this is greater or equal.
    fn ge(self, other: Self) -> Self::Mask;

    /// Where both are equal.
    fn same(self, other: Self) -> Self::Mask;

    /// `yes` where the mask is set, `no` elsewhere.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// A bit for each lane, the first in the lowest.
    fn bits(mask: Self::Mask) -> u32;

    /// Limited to `lo..=hi`; `lo` for NaN.
    #[inline(always)]
    fn clamp(self, lo: Self, hi: Self) -> Self {
        self.max(lo).min(hi)
    }

    /// Whether the mask is set in every lane.
    #[inline(always)]
    fn all(mask: Self::Mask) -> bool {
        Self::bits(mask) == u32::MAX >> (32 - LANES)
    }

    /// Whether the mask is set in any lane.
    #[inline(always)]
    fn any(mask: Self::Mask) -> bool {
        Self::bits(mask) != 0
    }
}
