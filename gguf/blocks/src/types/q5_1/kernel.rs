//! Groups of `Q5_1` for products.

use super::Q5_1;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::packing::with_fifth_bits;
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for Q5_1 {
    const GROUPS: usize = 1;
    const KIND: TileKind = TileKind {
        max: 31,
        offset: 0,
        halves: false,
        int_scales: false,
        mins: Minima::Float,
    };

    fn group(&self, _: usize) -> Group {
        Group {
            v: with_fifth_bits(&self.qs, self.qh),
            scales: Scales::Float([half(self.d); 2]),
            // The stored minimum is added.
            mins: Mins::Float(-half(self.m)),
        }
    }
}
