//! Kernels of `Q3_K`.

use super::Q3K;
use crate::kernel::{Group, GroupedBlock, Kernel, UnpackTile, unpack};
use crate::rows::half;
use crate::tile::TileKind;
use crate::{Cpu, Level};

/// The kernels at the level of `cpu`.
pub(super) fn kernel(cpu: Cpu) -> Kernel {
    let unpack: UnpackTile = match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::unpack,
        _ => unpack::<Q3K>,
    };
    Kernel::Int { unpack, kind: KIND }
}

const KIND: TileKind = TileKind {
    signed: false,
    max: 7,
    whole_group: false,
    has_min: true,
};

impl GroupedBlock for Q3K {
    const GROUPS: usize = 8;

    fn group(&self, g: usize) -> Group {
        let d = half(self.d);
        let v = std::array::from_fn(|e| {
            self.qs[32 * (g / 4) + e] >> (2 * (g % 4)) & 3 | (self.hmask[e] >> g & 1) << 2
        });
        let scale = [2 * g, 2 * g + 1].map(|k| {
            let low = if k < 8 {
                self.scales[k] & 15
            } else {
                self.scales[k - 8] >> 4
            };
            let high = self.scales[8 + k % 4] >> (2 * (k / 4)) & 3;
            d * f32::from((low | high << 4) as i8 - 32)
        });
        Group {
            v,
            scale,
            min: scale.map(|s| 4.0 * s),
        }
    }
}
