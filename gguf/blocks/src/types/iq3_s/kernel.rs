//! Groups of `IQ3_S` for products.

use super::IQ3_S;
use crate::codebook::{self, Codebook, odd, two};
use crate::grids::IQ3S;
use crate::kernel::{Group, IntBlock};
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for IQ3_S {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 30,
        offset: 15,
        halves: false,
        int_scales: true,
        mins: Minima::None,
    };

    fn group(&self, g: usize) -> Group {
        codebook::group(self, g)
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d), 0.0]
    }
}

impl Codebook for IQ3_S {
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
