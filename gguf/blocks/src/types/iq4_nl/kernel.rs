//! Kernels of `IQ4_NL`: portable at every level.

use super::IQ4NL;
use crate::iq4::LEVELS;
use crate::kernel::{Group, GroupedBlock, Kernel, unpack};
use crate::packing::from_nibbles;
use crate::rows::half;
use crate::tile::TileKind;

/// The kernels.
pub(super) const KERNEL: Kernel = Kernel::Int {
    unpack: unpack::<IQ4NL>,
    kind: TileKind {
        signed: true,
        max: 127,
        whole_group: true,
        has_min: false,
    },
};

impl GroupedBlock for IQ4NL {
    const GROUPS: usize = 1;

    fn group(&self, _g: usize) -> Group {
        Group {
            v: from_nibbles(&self.qs).map(|q| LEVELS[usize::from(q)] as u8),
            scale: [half(self.d); 2],
            min: [0.0; 2],
        }
    }
}
