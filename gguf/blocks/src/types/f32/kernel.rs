//! Kernels of `F32`.

use crate::kernel::{Kernel, UnpackPanel, unpack_floats};
use crate::{Cpu, Level};

/// The kernels at the level of `cpu`.
pub(super) fn kernel(cpu: Cpu) -> Kernel {
    let unpack: UnpackPanel = match cpu.level().base() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::unpack,
        _ => |rows, first_col, panel| unpack_floats(rows, first_col, panel, f32::from_le_bytes),
    };
    Kernel::Float { unpack, round: None }
}
