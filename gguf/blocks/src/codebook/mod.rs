//! Groups of the types whose values are points of a lattice with signs: `IQ2_XXS`, `IQ2_XS`, `IQ2_S`, `IQ3_XXS` and
//! `IQ3_S`.

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use crate::grids;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::rows::{Stored, half};
use crate::tile::{Minima, TileKind};

/// A super-block of points.
pub(crate) trait Codebook: Stored {
    /// The largest magnitude.
    const MAGNITUDE: u8;
    /// Whether halves of a group have scales of their own.
    const HALVES: bool;
    /// What the stored unit is multiplied with to be that of [`Self::scales`]: a power of two.
    const UNIT: f32;

    /// The stored unit of the scales, a half.
    fn d(&self) -> [u8; 2];

    /// The magnitudes of the 32 values of group `g`, in order from the lowest byte of the first word on.
    fn magnitudes(&self, g: usize) -> [u64; 4];

    /// Which of them are negative, from the lowest bit on.
    fn signs(&self, g: usize) -> u32;

    /// The scales of both halves of group `g`.
    fn scales(&self, g: usize) -> [i8; 2];
}

impl<B: Codebook> IntBlock for B {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 2 * B::MAGNITUDE,
        offset: B::MAGNITUDE,
        halves: B::HALVES,
        int_scales: true,
        mins: Minima::None,
    };

    fn group(&self, g: usize) -> Group {
        let mut v = [0; 32];
        for (v, word) in v.as_chunks_mut::<8>().0.iter_mut().zip(self.magnitudes(g)) {
            *v = word.to_le_bytes();
        }
        let signs = self.signs(g);
        for (i, v) in v.iter_mut().enumerate() {
            let offset = B::MAGNITUDE;
            *v = if signs >> i & 1 == 0 {
                offset + *v
            } else {
                offset - *v
            };
        }
        Group {
            v,
            scales: Scales::Int(self.scales(g)),
            mins: Mins::None,
        }
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d()) * B::UNIT, 0.0]
    }
}

/// Signs of which only seven of each eight are stored, in the low 28 bits: an even number of eight is negative.
#[inline(always)]
pub(crate) fn even_signs(stored: u32) -> u32 {
    let eight = |i: usize| u32::from(grids::even_signs(stored >> (7 * i))) << (8 * i);
    eight(0) | eight(1) | eight(2) | eight(3)
}

/// Two points of four values.
#[inline(always)]
pub(crate) fn two(low: [u8; 4], high: [u8; 4]) -> u64 {
    u64::from(u32::from_le_bytes(low)) | u64::from(u32::from_le_bytes(high)) << 32
}

/// The scale `1 + 2 * four`.
#[inline(always)]
pub(crate) fn odd(four: u8) -> i8 {
    (1 + 2 * (four & 15)) as i8
}
