//! Groups of `IQ2_XS` for products.

use super::IQ2_XS;
use crate::codebook::{Codebook, even_signs, odd};
use crate::grids::IQ2XS;

impl Codebook for IQ2_XS {
    const MAGNITUDE: u8 = 43;
    const HALVES: bool = true;
    const UNIT: f32 = 0.125;

    #[inline(always)]
    fn d(&self) -> [u8; 2] {
        self.d
    }

    #[inline(always)]
    fn magnitudes(&self, g: usize) -> [u64; 4] {
        let [a, b, c, d] = self.qs.as_chunks::<4>().0[g];
        [a, b, c, d].map(|q| u64::from_le_bytes(IQ2XS[usize::from(u16::from_le_bytes(q) & 511)]))
    }

    #[inline(always)]
    fn signs(&self, g: usize) -> u32 {
        let [a, b, c, d] = self.qs.as_chunks::<4>().0[g].map(|q| u32::from(q[1] >> 1));
        even_signs(a | b << 7 | c << 14 | d << 21)
    }

    #[inline(always)]
    fn scales(&self, g: usize) -> [i8; 2] {
        [odd(self.scales[g]), odd(self.scales[g] >> 4)]
    }
}
