//! Kernels of `Q6_K`.

use super::Q6K;
use crate::kernel::{Group, GroupedBlock, Kernel, UnpackTile, unpack};
use crate::rows::half;
use crate::tile::TileKind;
use crate::{Cpu, Level};

/// The kernels at the level of `cpu`.
pub(super) fn kernel(cpu: Cpu) -> Kernel {
    let unpack: UnpackTile = match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::unpack,
        _ => unpack::<Q6K>,
    };
    Kernel::Int { unpack, kind: KIND }
}

const KIND: TileKind = TileKind {
    signed: false,
    max: 63,
    whole_group: false,
    has_min: true,
};

impl GroupedBlock for Q6K {
    const GROUPS: usize = 8;

    fn group(&self, g: usize) -> Group {
        let d = half(self.d);
        let (half, quarter) = (g / 4, g % 4);
        let v = std::array::from_fn(|e| {
            let low = self.ql[64 * half + 32 * (quarter % 2) + e] >> (4 * (quarter / 2)) & 15;
            let high = self.qh[32 * half + e] >> (2 * quarter) & 3;
            low | high << 4
        });
        let scale = [self.scales[2 * g], self.scales[2 * g + 1]].map(|s| d * f32::from(s));
        Group {
            v,
            scale,
            min: scale.map(|s| 32.0 * s),
        }
    }
}
