//! Groups of `TQ1_0` for products.

use super::{TQ1_0, unpack_trits};
use crate::kernel::{Group, IntBlock, Mins, Scales};
use crate::rows::half;
use crate::tile::{Minima, TileKind};

impl IntBlock for TQ1_0 {
    const GROUPS: usize = 8;
    const KIND: TileKind = TileKind {
        max: 2,
        offset: 1,
        halves: false,
        int_scales: true,
        mins: Minima::None,
    };

    fn group(&self, g: usize) -> Group {
        Group {
            v: unpack_trits(self).as_chunks::<32>().0[g],
            scales: Scales::Int([1; 2]),
            mins: Mins::None,
        }
    }

    fn units(&self) -> [f32; 2] {
        [half(self.d), 0.0]
    }
}
