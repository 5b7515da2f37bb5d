//! Kernels of `TQ1_0`: portable at every level.

use super::{TQ1_0, unpack_trits};
use crate::kernel::{Group, GroupedBlock, Kernel, unpack};
use crate::rows::half;
use crate::tile::TileKind;

/// The kernels.
pub(super) const KERNEL: Kernel = Kernel::Int {
    unpack: unpack::<TQ1_0>,
    kind: TileKind {
        signed: true,
        max: 1,
        whole_group: true,
        has_min: false,
    },
};

impl GroupedBlock for TQ1_0 {
    const GROUPS: usize = 8;

    fn group(&self, g: usize) -> Group {
        let trits = unpack_trits(self);
        Group {
            v: trits.as_chunks::<32>().0[g].map(|t| t.wrapping_sub(1)),
            scale: [half(self.d); 2],
            min: [0.0; 2],
        }
    }
}
