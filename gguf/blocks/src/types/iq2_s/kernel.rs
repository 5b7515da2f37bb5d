//! Groups of `IQ2_S` for products.

use super::IQ2_S;
use crate::codebook::{self, Codebook, odd};
use crate::grids::IQ2S;
use crate::kernel::{Group, IntBlock};
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for IQ2_S {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 86,
        offset: 43,
        halves: true,
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

impl Codebook for IQ2_S {
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
