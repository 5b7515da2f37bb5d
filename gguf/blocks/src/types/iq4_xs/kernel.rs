//! Groups of `IQ4_XS` for products.

use super::IQ4XS;
use crate::iq4::LEVELS;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::packing::from_nibbles;
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for IQ4XS {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 255,
        offset: 128,
        halves: false,
        int_scales: true,
        mins: Minima::None,
    };

    fn group(&self, g: usize) -> Group {
        Group {
            v: from_nibbles(&self.qs[g]).map(|q| LEVELS[usize::from(q)] as u8 ^ 0x80),
            scales: Scales::Int([self.sub_scale(g); 2]),
            mins: Mins::None,
        }
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d), 0.0]
    }
}
