//! Groups of `IQ3_XXS` for products.

use super::IQ3_XXS;
use crate::codebook::{Codebook, even_signs, odd, two};
use crate::grids::IQ3XXS;

impl Codebook for IQ3_XXS {
    const MAGNITUDE: u8 = 62;
    const HALVES: bool = false;
    const UNIT: f32 = 0.25;

    #[inline(always)]
    fn d(&self) -> [u8; 2] {
        self.d
    }

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
