//! Kernels of `Q4_K`.

use super::Q4K;
use crate::kernel::{Group, GroupedBlock, Kernel, UnpackTile, unpack};
use crate::rows::half;
use crate::tile::TileKind;
use crate::{Cpu, Level, six_bit};

/// The kernels at the level of `cpu`.
pub(super) fn kernel(cpu: Cpu) -> Kernel {
    let unpack: UnpackTile = match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::unpack,
        _ => unpack::<Q4K>,
    };
    Kernel::Int { unpack, kind: KIND }
}

const KIND: TileKind = TileKind {
    signed: false,
    max: 15,
    whole_group: true,
    has_min: true,
};

impl GroupedBlock for Q4K {
    const GROUPS: usize = 8;

    fn group(&self, g: usize) -> Group {
        let (scales, mins) = six_bit::unpack(&self.scales);
        let d = half(self.d);
        let dmin = half(self.dmin);
        let v = std::array::from_fn(|e| self.qs[32 * (g / 2) + e] >> (4 * (g % 2)) & 15);
        Group {
            v,
            scale: [d * f32::from(scales[g]); 2],
            min: [dmin * f32::from(mins[g]); 2],
        }
    }
}
