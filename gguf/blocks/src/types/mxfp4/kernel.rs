//! Groups of `MXFP4` for products.

use super::{MXFP4, half_scale};
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::packing::{FP4_OFFSET, LIFTED_FP4, from_nibbles};
use crate::tile::{Minima, TileKind};

impl IntBlock for MXFP4 {
    const GROUPS: usize = 1;
    const KIND: TileKind = TileKind {
        max: 2 * FP4_OFFSET,
        offset: FP4_OFFSET,
        halves: false,
        int_scales: false,
        mins: Minima::None,
    };

    fn group(&self, _: usize) -> Group {
        Group {
            v: from_nibbles(&self.qs).map(|q| LIFTED_FP4[usize::from(q)] as u8),
            scales: Scales::Float([half_scale(self.e); 2]),
            mins: Mins::None,
        }
    }
}
