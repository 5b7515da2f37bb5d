//! Groups of `IQ3_XXS` for products.

use super::IQ3_XXS;
use crate::codebook::{self, Codebook, even_signs, odd, two};
use crate::grids::IQ3XXS;
use crate::kernel::{Group, IntBlock};
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for IQ3_XXS {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 124,
        offset: 62,
        halves: false,
        int_scales: true,
        mins: Minima::None,
    };

    fn group(&self, g: usize) -> Group {
        codebook::group(self, g)
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d) * 0.25, 0.0]
    }
}

impl Codebook for IQ3_XXS {
    #[inline(always)]
    fn magnitudes(&self, g: usize) -> [u64; 4] {
        let point = |i: usize| IQ3XXS[usize::from(self.qs[g][i])];
        [
            two(point(0), point(1)),
            two(point(2), point(3)),
            two(point(4), point(5)),
            two(point(6), point(7)),
        ]
    }

    #[inline(always)]
    fn signs(&self, g: usize) -> u32 {
        even_signs(u32::from_le_bytes(self.rest[g]))
    }

    #[inline(always)]
    fn scales(&self, g: usize) -> [i8; 2] {
        [odd(self.rest[g][3] >> 4); 2]
    }
}
