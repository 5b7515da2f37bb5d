//! Groups of `IQ2_S` for products.

use super::IQ2_S;
use crate::codebook::{Codebook, odd};
use crate::grids::IQ2S;

impl Codebook for IQ2_S {
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
        let high = usize::from(self.qh[g]);
        [(a, high << 8), (b, high << 6), (c, high << 4), (d, high << 2)]
            .map(|(low, high)| u64::from_le_bytes(IQ2S[usize::from(low) | high & 0x300]))
    }

    #[inline(always)]
    fn signs(&self, g: usize) -> u32 {
        u32::from_le_bytes(self.signs.as_chunks::<4>().0[g])
    }

    #[inline(always)]
    fn scales(&self, g: usize) -> [i8; 2] {
        [odd(self.scales[g]), odd(self.scales[g] >> 4)]
    }
}
