//! Groups of `TQ2_0` for products.

use super::TQ2_0;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for TQ2_0 {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 3,
        offset: 1,
        halves: false,
        int_scales: true,
        mins: Minima::None,
    };

    fn group(&self, g: usize) -> Group {
        let codes = &self.qs.as_chunks::<32>().0[g / 4];
        Group {
            v: codes.map(|q| q >> (2 * (g % 4)) & 3),
            scales: Scales::Int([1; 2]),
            mins: Mins::None,
        }
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d), 0.0]
    }
}
