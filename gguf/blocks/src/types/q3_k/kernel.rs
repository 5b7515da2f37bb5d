//! Groups of `Q3_K` for products.

use super::Q3K;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for Q3K {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 7,
        offset: 4,
        halves: true,
        int_scales: true,
        mins: Minima::None,
    };

    fn group(&self, g: usize) -> Group {
        let v = std::array::from_fn(|e| {
            self.qs[32 * (g / 4) + e] >> (2 * (g % 4)) & 3 | (self.hmask[e] >> g & 1) << 2
        });
        let scales = [2 * g, 2 * g + 1].map(|k| {
            let low = if k < 8 {
                self.scales[k] & 15
            } else {
                self.scales[k - 8] >> 4
            };
            let high = self.scales[8 + k % 4] >> (2 * (k / 4)) & 3;
            (low | high << 4) as i8 - 32
        });
        Group {
            v,
            scales: Scales::Int(scales),
            mins: Mins::None,
        }
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d), 0.0]
    }
}
