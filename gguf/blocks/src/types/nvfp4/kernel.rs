//! Groups of `NVFP4` for products.

use super::{NVFP4, half_scale};
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::packing::{FP4_OFFSET, LIFTED_FP4};
use crate::tile::{Minima, TileKind};

impl IntBlock for NVFP4 {
    const GROUPS: usize = 2;
    const KIND: TileKind = TileKind {
        max: 2 * FP4_OFFSET,
        offset: FP4_OFFSET,
        halves: true,
        int_scales: false,
        mins: Minima::None,
    };

    fn group(&self, g: usize) -> Group {
        let code = |e: usize| self.qs[2 * g + e / 16][e % 8] >> (e % 16 / 8 * 4) & 15;
        Group {
            v: std::array::from_fn(|e| LIFTED_FP4[usize::from(code(e))] as u8),
            scales: Scales::Float([half_scale(self.d[2 * g]), half_scale(self.d[2 * g + 1])]),
            mins: Mins::None,
        }
    }
}
