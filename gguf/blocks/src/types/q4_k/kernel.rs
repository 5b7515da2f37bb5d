//! Groups of `Q4_K` for products.

use super::Q4K;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::rows::half;
use crate::six_bit;
use crate::tile::{Minima, TileKind};

impl IntBlock for Q4K {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 15,
        offset: 0,
        halves: false,
        int_scales: true,
        mins: Minima::Float,
    };

    fn group(&self, g: usize) -> Group {
        let (scales, mins) = six_bit::unpack(&self.scales);
        Group {
            v: std::array::from_fn(|e| self.qs[32 * (g / 2) + e] >> (4 * (g % 2)) & 15),
            scales: Scales::Int([scales[g] as i8; 2]),
            mins: Mins::Float(half(self.dmin) * f32::from(mins[g])),
        }
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d), 0.0]
    }
}
