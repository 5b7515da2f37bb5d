//! Groups of `Q5_K` for products.

use super::Q5K;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::rows::half;
use crate::six_bit;
use crate::tile::{Minima, TileKind};

impl IntBlock for Q5K {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 31,
        offset: 0,
        halves: false,
        int_scales: true,
        mins: Minima::Float,
    };

    fn group(&self, g: usize) -> Group {
        let (scales, mins) = six_bit::unpack(&self.scales);
        let v = std::array::from_fn(|e| {
            let low = self.qs[32 * (g / 2) + e] >> (4 * (g % 2)) & 15;
            low | (self.qh[e] >> g & 1) << 4
        });
        Group {
            v,
            scales: Scales::Int([scales[g] as i8; 2]),
            mins: Mins::Float(half(self.dmin) * f32::from(mins[g])),
        }
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d), 0.0]
    }
}
