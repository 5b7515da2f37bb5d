//! Kernels of `F32`.

use crate::Cpu;
use crate::kernel::{FloatDot, Kernel, UnpackPanel, dot_floats, unpack_floats};

/// The kernels at the level of `cpu`.
pub(super) fn kernel(cpu: Cpu) -> Kernel {
    let (unpack, dot): (UnpackPanel, FloatDot) = match cpu.level().base() {
        #[cfg(target_arch = "x86_64")]
        crate::Level::Avx2 => (super::x86::unpack, super::x86::dot),
        _ => (
            |rows, first_col, panel| unpack_floats(rows, first_col, panel, f32::from_le_bytes),
            |rows, _, x, acc| dot_floats(rows, x, acc, f32::from_le_bytes),
        ),
    };
    Kernel::Float {
        unpack,
        dot,
        round: None,
    }
}
