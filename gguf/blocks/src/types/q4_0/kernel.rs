//! Groups of `Q4_0` for products.

use super::Q4_0;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::packing::from_nibbles;
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for Q4_0 {
    const GROUPS: usize = 1;
    const KIND: TileKind = TileKind {
        max: 15,
        offset: 8,
        halves: false,
        int_scales: false,
        mins: Minima::None,
    };

    fn group(&self, _: usize) -> Group {
        Group {
            v: from_nibbles(&self.qs),
            scales: Scales::Float([half(self.d); 2]),
            mins: Mins::None,
        }
    }
}
