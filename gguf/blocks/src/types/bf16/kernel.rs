//! Kernels of `BF16`.

use crate::Cpu;
use crate::half_bulk::{bf16_to_f32, f32_to_bf16};
use crate::kernel::{FloatDot, Kernel, UnpackPanel, dot_floats, unpack_floats};

/// The kernels at the level of `cpu`.
pub(super) fn kernel(cpu: Cpu) -> Kernel {
    let (unpack, dot): (UnpackPanel, FloatDot) = match cpu.level().base() {
        #[cfg(target_arch = "x86_64")]
        crate::Level::Avx2 => (super::x86::unpack, super::x86::dot),
        _ => (
            |rows, first_col, panel| {
                unpack_floats(rows, first_col, panel, |b| bf16_to_f32(u16::from_le_bytes(b)));
            },
            |rows, _, x, acc| dot_floats(rows, x, acc, |b| bf16_to_f32(u16::from_le_bytes(b))),
        ),
    };
    Kernel::Float {
        unpack,
        dot,
        round: Some(round),
    }
}

/// As the reference does in front of these weights; the observer of a product sees the exact rows.
fn round(x: &[f32], rounded: &mut [f32]) {
    for (x, rounded) in x.iter().zip(rounded) {
        *rounded = bf16_to_f32(f32_to_bf16(*x));
    }
}
