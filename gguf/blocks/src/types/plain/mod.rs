//! Types that only pass through: whole numbers and double precision. They hold tables and indices, never weights,
//! so there is nothing to decode for a product; any bytes are sound.

use crate::{Format, Geometry, TypeId};

/// A record with `bytes` for each value.
const fn plain(id: u32, name: &'static str, bytes: usize, doc: &'static str) -> Format {
    Format {
        id: TypeId(id),
        name,
        geometry: Geometry::blocks(1, bytes),
        quantized: false,
        requires_importance: false,
        decode: None,
        encode: None,
        check: |_| None,
        kernel: |_| None,
        doc,
    }
}

/// The record of `I8`.
pub(crate) static I8: Format = plain(24, "I8", 1, "8-bit signed integers, passed through");
/// The record of `I16`.
pub(crate) static I16: Format = plain(25, "I16", 2, "16-bit signed integers, passed through");
/// The record of `I32`.
pub(crate) static I32: Format = plain(26, "I32", 4, "32-bit signed integers, passed through");
/// The record of `I64`.
pub(crate) static I64: Format = plain(27, "I64", 8, "64-bit signed integers, passed through");
/// The record of `F64`.
pub(crate) static F64: Format = plain(28, "F64", 8, "IEEE double precision, passed through");
