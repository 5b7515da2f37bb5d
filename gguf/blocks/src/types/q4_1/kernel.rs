//! Groups of `Q4_1` for products.

use super::Q4_1;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::packing::from_nibbles;
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for Q4_1 {
    const GROUPS: usize = 1;
    const KIND: TileKind = TileKind {
        max: 15,
        offset: 0,
        halves: false,
        int_scales: false,
        mins: Minima::Float,
    };

    fn group(&self, _: usize) -> Group {
        Group {
            v: from_nibbles(&self.qs),
            scales: Scales::Float([half(self.d); 2]),
            // The stored minimum is added.
            mins: Mins::Float(-half(self.m)),
        }
    }
}
