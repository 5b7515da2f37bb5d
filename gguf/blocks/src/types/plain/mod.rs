//! Types without a layout of their own. Whole numbers and double precision hold tables and indices; their values are
//! rounded to single precision where they have more bits.

use crate::{Format, Geometry, TypeId, rows};

/// The record of a type whose values are `N` bytes each.
const fn plain<const N: usize>(
    id: u32,
    name: &'static str,
    decode: fn(&[u8], &mut [f32]),
    doc: &'static str,
) -> Format {
    Format {
        id: TypeId(id),
        name,
        geometry: Geometry::blocks(1, N),
        quantized: false,
        decode: Some(decode),
        doc,
        ..Format::MAINLINE
    }
}

/// Decodes values of `N` bytes each.
fn decode<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    rows::decode::<[u8; N], 1>(bytes, out, |&b, [v]| *v = value(b));
}

/// The record of `I8`.
pub(crate) static I8: Format = plain::<1>(
    24,
    "I8",
    |bytes, out| decode(bytes, out, |b| f32::from(i8::from_le_bytes(b))),
    "8-bit signed integers",
);
/// The record of `I16`.
pub(crate) static I16: Format = plain::<2>(
    25,
    "I16",
    |bytes, out| decode(bytes, out, |b| f32::from(i16::from_le_bytes(b))),
    "16-bit signed integers",
);
/// The record of `I32`.
pub(crate) static I32: Format = plain::<4>(
    26,
    "I32",
    |bytes, out| decode(bytes, out, |b| i32::from_le_bytes(b) as f32),
    "32-bit signed integers",
);
/// The record of `I64`.
pub(crate) static I64: Format = plain::<8>(
    27,
    "I64",
    |bytes, out| decode(bytes, out, |b| i64::from_le_bytes(b) as f32),
    "64-bit signed integers",
);
/// The record of `F64`.
pub(crate) static F64: Format = Format {
    check: |bytes| rows::check_values::<[u8; 8]>(bytes, |b| f64::from_le_bytes(b).is_finite()),
    ..plain::<8>(
        28,
        "F64",
        |bytes, out| decode(bytes, out, |b| f64::from_le_bytes(b) as f32),
        "IEEE double precision",
    )
};
/// The record of `BF16_R16`: 16 interleaved rows of `BF16`. Which order the values have is not known here, so it cannot
/// be decoded; they can be checked in any order.
pub(crate) static BF16_R16: Format = Format {
    id: TypeId(230),
    name: "BF16_R16",
    geometry: Geometry::interleaved(16, 1, 32),
    quantized: false,
    // Any value that is not finite stands for the whole group.
    check: |bytes| super::bf16::check(bytes).map(|_| 0),
    doc: "BF16, 16 rows interleaved",
    ..Format::IK
};
