//! Groups of `IQ2_XXS` for products.

use super::IQ2_XXS;
use crate::codebook::{Codebook, even_signs, odd};
use crate::grids::IQ2XXS;

impl Codebook for IQ2_XXS {
    const MAGNITUDE: u8 = 43;
    const HALVES: bool = false;
    const UNIT: f32 = 0.125;

    #[inline(always)]
    fn d(&self) -> [u8; 2] {
        self.d
    }

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
