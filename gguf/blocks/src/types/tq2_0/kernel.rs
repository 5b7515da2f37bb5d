//! Kernels of `TQ2_0`: portable at every level.

use super::TQ2_0;
use crate::kernel::{Group, GroupedBlock, Kernel, unpack};
use crate::rows::half;
use crate::tile::TileKind;

/// The kernels.
pub(super) const KERNEL: Kernel = Kernel::Int {
    unpack: unpack::<TQ2_0>,
    kind: TileKind {
        signed: true,
        max: 2,
        whole_group: true,
        has_min: false,
    },
};

impl GroupedBlock for TQ2_0 {
    const GROUPS: usize = 8;

    fn group(&self, g: usize) -> Group {
        let qs = &self.qs.as_chunks::<32>().0[g / 4];
        Group {
            v: qs.map(|q| (q >> (2 * (g % 4)) & 3).wrapping_sub(1)),
            scale: [half(self.d); 2],
            min: [0.0; 2],
        }
    }
}
