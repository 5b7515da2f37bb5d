//! Groups of `IQ3_S` for products.

use super::IQ3_S;
use crate::codebook::{Codebook, odd, two};
use crate::grids::IQ3S;

impl Codebook for IQ3_S {
    const MAGNITUDE: u8 = 15;
    const HALVES: bool = false;
    const UNIT: f32 = 1.0;

    #[inline(always)]
    fn d(&self) -> [u8; 2] {
        self.d
    }

    #[inline(always)]
    fn magnitudes(&self, g: usize) -> [u64; 4] {
        let high = usize::from(self.qh[g]);
        let point = |i: usize| IQ3S[usize::from(self.qs[g][i]) | high << (8 - i) & 0x100];
        [
            two(point(0), point(1)),
            two(point(2), point(3)),
            two(point(4), point(5)),
            two(point(6), point(7)),
        ]
    }

    #[inline(always)]
    fn signs(&self, g: usize) -> u32 {
        u32::from_le_bytes(self.signs.as_chunks::<4>().0[g])
    }

    #[inline(always)]
    fn scales(&self, g: usize) -> [i8; 2] {
        [odd(self.scales[g / 2] >> (g % 2 * 4)); 2]
    }
}
