//! Groups of `Q8_0` for products.

use super::Q8_0;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for Q8_0 {
    const GROUPS: usize = 1;
    const KIND: TileKind = TileKind {
        max: 255,
        offset: 128,
        halves: false,
        int_scales: false,
        mins: Minima::None,
    };

    fn group(&self, _: usize) -> Group {
        Group {
            v: self.qs.map(|q| q as u8 ^ 0x80),
            scales: Scales::Float([half(self.d); 2]),
            mins: Mins::None,
        }
    }
}
