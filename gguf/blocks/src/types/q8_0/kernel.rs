//! Kernels of `Q8_0`.

use super::Q8_0;
use crate::kernel::{Group, GroupedBlock, Kernel, UnpackTile, unpack};
use crate::rows::half;
use crate::tile::TileKind;
use crate::{Cpu, Level};

/// The kernels at the level of `cpu`.
pub(super) fn kernel(cpu: Cpu) -> Kernel {
    let unpack: UnpackTile = match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::unpack,
        _ => unpack::<Q8_0>,
    };
    Kernel::Int { unpack, kind: KIND }
}

const KIND: TileKind = TileKind {
    signed: true,
    max: 128,
    whole_group: true,
    has_min: false,
};

impl GroupedBlock for Q8_0 {
    const GROUPS: usize = 1;

    fn group(&self, _g: usize) -> Group {
        let v = self.qs.map(|q| q as u8);
        Group {
            v,
            scale: [half(self.d); 2],
            min: [0.0; 2],
        }
    }
}
