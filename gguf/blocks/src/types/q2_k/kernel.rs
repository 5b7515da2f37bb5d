//! Kernels of `Q2_K`.

use super::Q2K;
use crate::kernel::{Group, GroupedBlock, Kernel, UnpackTile, unpack};
use crate::rows::half;
use crate::tile::TileKind;
use crate::{Cpu, Level};

/// The kernels at the level of `cpu`.
pub(super) fn kernel(cpu: Cpu) -> Kernel {
    let unpack: UnpackTile = match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::unpack,
        _ => unpack::<Q2K>,
    };
    Kernel::Int { unpack, kind: KIND }
}

const KIND: TileKind = TileKind {
    signed: false,
    max: 3,
    whole_group: false,
    has_min: true,
};

impl GroupedBlock for Q2K {
    const GROUPS: usize = 8;

    fn group(&self, g: usize) -> Group {
        let d = half(self.d);
        let dmin = half(self.dmin);
        let v = std::array::from_fn(|e| self.qs[32 * (g / 4) + e] >> (2 * (g % 4)) & 3);
        let scales = [self.scales[2 * g], self.scales[2 * g + 1]];
        Group {
            v,
            scale: scales.map(|s| d * f32::from(s & 15)),
            min: scales.map(|s| dmin * f32::from(s >> 4)),
        }
    }
}
