//! `BF16`: the upper half of IEEE single precision, little-endian.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::half_bulk::{bf16_slice_to_f32, f32_slice_to_bf16};
use crate::rows;
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// The encoder of the type.
struct BF16;

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(30),
    name: "BF16",
    geometry: Geometry::blocks(1, 2),
    quantized: false,
    decode: Some(decode),
    encode: Some(encoder::<BF16>),
    encode_cost: 2,
    check,
    kernel: |cpu| Some(kernel::kernel(cpu)),
    doc: "The upper half of IEEE single precision",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    bf16_slice_to_f32(rows::blocks(bytes), out);
}

impl Encode for BF16 {
    #[inline(always)]
    fn encode<S: Simd>(_: S, src: &[f32], _: Importance<'_>, out: &mut [u8]) {
        f32_slice_to_bf16(src, rows::blocks_mut(out));
    }
}

pub(super) fn check(bytes: &[u8]) -> Option<usize> {
    rows::check_values::<[u8; 2]>(bytes, |b| u16::from_le_bytes(b) & 0x7f80 != 0x7f80)
}
