//! `F32`: little-endian IEEE single precision, bit for bit.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::rows;
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// The encoder of the type.
struct F32;

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(0),
    name: "F32",
    geometry: Geometry::blocks(1, 4),
    quantized: false,
    decode: Some(decode),
    encode: Some(encoder::<F32>),
    encode_cost: 2,
    check,
    kernel: |cpu| Some(kernel::kernel(cpu)),
    doc: "IEEE single precision",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<[u8; 4], 1>(bytes, out, |&b, [v]| *v = f32::from_le_bytes(b));
}

impl Encode for F32 {
    #[inline(always)]
    fn encode<S: Simd>(_: S, src: &[f32], _: Importance<'_>, out: &mut [u8]) {
        let (src, out) = rows::pairs::<[u8; 4], 1>(src, out);
        for ([v], b) in src.iter().zip(out) {
            *b = v.to_le_bytes();
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check_values::<[u8; 4]>(bytes, |b| u32::from_le_bytes(b) & 0x7f80_0000 != 0x7f80_0000)
}
