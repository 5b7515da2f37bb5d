//! Kernels of `Q5_0`.

use super::Q5_0;
use crate::kernel::{Group, GroupedBlock, Kernel, UnpackTile, unpack};
use crate::packing::with_fifth_bits;
use crate::rows::half;
use crate::tile::TileKind;
use crate::{Cpu, Level};

/// The kernels at the level of `cpu`.
pub(super) fn kernel(cpu: Cpu) -> Kernel {
    let unpack: UnpackTile = match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::unpack,
        _ => unpack::<Q5_0>,
    };
    Kernel::Int { unpack, kind: KIND }
}

const KIND: TileKind = TileKind {
    signed: false,
    max: 31,
    whole_group: true,
    has_min: true,
};

impl GroupedBlock for Q5_0 {
    const GROUPS: usize = 1;

    fn group(&self, _g: usize) -> Group {
        let d = half(self.d);
        let v = with_fifth_bits(&self.qs, self.qh);
        Group {
            v,
            scale: [d; 2],
            min: [16.0 * d; 2],
        }
    }
}
