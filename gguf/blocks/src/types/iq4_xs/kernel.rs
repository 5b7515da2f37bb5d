//! Kernels of `IQ4_XS`: portable at every level.

use super::IQ4XS;
use crate::iq4::LEVELS;
use crate::kernel::{Group, GroupedBlock, Kernel, unpack};
use crate::packing::from_nibbles;
use crate::tile::TileKind;

/// The kernels.
pub(super) const KERNEL: Kernel = Kernel::Int {
    unpack: unpack::<IQ4XS>,
    kind: TileKind {
        signed: true,
        max: 127,
        whole_group: true,
        has_min: false,
    },
};

impl GroupedBlock for IQ4XS {
    const GROUPS: usize = 8;

    fn group(&self, g: usize) -> Group {
        Group {
            v: from_nibbles(&self.qs[g]).map(|q| LEVELS[usize::from(q)] as u8),
            scale: [self.sub_scales()[g]; 2],
            min: [0.0; 2],
        }
    }
}
