//! Groups of `Q6_K` for products.

use super::Q6K;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for Q6K {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 63,
        offset: 32,
        halves: true,
        int_scales: true,
        mins: Minima::None,
    };

    fn group(&self, g: usize) -> Group {
        let (half, quarter) = (g / 4, g % 4);
        let v = std::array::from_fn(|e| {
            let low = self.ql[64 * half + 32 * (quarter % 2) + e] >> (4 * (quarter / 2)) & 15;
            let high = self.qh[32 * half + e] >> (2 * quarter) & 3;
            low | high << 4
        });
        Group {
            v,
            scales: Scales::Int([self.scales[2 * g], self.scales[2 * g + 1]]),
            mins: Mins::None,
        }
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d), 0.0]
    }
}
