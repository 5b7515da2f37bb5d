//! Kernels of `MXFP4`: portable at every level.

use super::{MXFP4, half_scale};
use crate::kernel::{Group, GroupedBlock, Kernel, unpack};
use crate::packing::{DOUBLED_FP4, from_nibbles};
use crate::tile::TileKind;

/// The kernels.
pub(super) const KERNEL: Kernel = Kernel::Int {
    unpack: unpack::<MXFP4>,
    kind: TileKind {
        signed: true,
        max: 12,
        whole_group: true,
        has_min: false,
    },
};

impl GroupedBlock for MXFP4 {
    const GROUPS: usize = 1;

    fn group(&self, _g: usize) -> Group {
        Group {
            v: from_nibbles(&self.qs).map(|q| DOUBLED_FP4[usize::from(q)] as u8),
            scale: [half_scale(self.e); 2],
            min: [0.0; 2],
        }
    }
}
