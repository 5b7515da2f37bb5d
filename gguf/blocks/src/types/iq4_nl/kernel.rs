//! Groups of `IQ4_NL` for products.

use super::IQ4NL;
use crate::iq4::LEVELS;
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::packing::from_nibbles;
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for IQ4NL {
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
            v: from_nibbles(&self.qs).map(|q| LEVELS[usize::from(q)] as u8 ^ 0x80),
            scales: Scales::Float([half(self.d); 2]),
            mins: Mins::None,
        }
    }
}
