//! Groups of `IQ2_XXS` for products.

use super::IQ2_XXS;
use crate::codebook::{self, Codebook, even_signs, odd};
use crate::grids::IQ2XXS;
use crate::kernel::{Group, IntBlock};
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for IQ2_XXS {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 86,
        offset: 43,
        halves: false,
        int_scales: true,
        mins: Minima::None,
    };

    fn group(&self, g: usize) -> Group {
        codebook::group(self, g)
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d) * 0.125, 0.0]
    }
}

impl Codebook for IQ2_XXS {
    #[inline(always)]
    fn magnitudes(&self, g: usize) -> [u64; 4] {
        let [a, b, c, d, ..] = self.qs[g];
        [a, b, c, d].map(|point| u64::from_le_bytes(IQ2XXS[usize::from(point)]))
    }

    #[inline(always)]
    fn signs(&self, g: usize) -> u32 {
        let [.., a, b, c, d] = self.qs[g];
        even_signs(u32::from_le_bytes([a, b, c, d]))
    }

    #[inline(always)]
    fn scales(&self, g: usize) -> [i8; 2] {
        [odd(self.qs[g][7] >> 4); 2]
    }
}
