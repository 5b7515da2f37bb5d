//! `F16`: little-endian IEEE half precision.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::half_bulk::{f16_slice_to_f32, f32_slice_to_f16};
use crate::rows;
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// The encoder of the type.
struct F16;

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(1),
    name: "F16",
    geometry: Geometry::blocks(1, 2),
    quantized: false,
    decode: Some(decode),
    encode: Some(encoder::<F16>),
    encode_cost: 3,
    check,
    kernel: |cpu| Some(kernel::kernel(cpu)),
    doc: "IEEE half precision",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    f16_slice_to_f32(rows::blocks(bytes), out);
}

impl Encode for F16 {
    #[inline(always)]
    fn encode<S: Simd>(_: S, src: &[f32], _: Importance<'_>, out: &mut [u8]) {
        f32_slice_to_f16(src, rows::blocks_mut(out));
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check_values::<[u8; 2]>(bytes, |b| u16::from_le_bytes(b) & 0x7c00 != 0x7c00)
}
