//! Groups of `Q2_K` for products.

use super::Q2K;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for Q2K {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 3,
        offset: 0,
        halves: true,
        int_scales: true,
        mins: Minima::Int,
    };

    fn group(&self, g: usize) -> Group {
        let codes = &self.qs.as_chunks::<32>().0[g / 4];
        let scales = [self.scales[2 * g], self.scales[2 * g + 1]];
        Group {
            v: codes.map(|q| q >> (2 * (g % 4)) & 3),
            scales: Scales::Int(scales.map(|s| (s & 15) as i8)),
            mins: Mins::Int(scales.map(|s| s >> 4)),
        }
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d), half(self.dmin)]
    }
}
