//! `F32`: TODO

mod kernel;

use crate::{Format, Geometry, TypeId};

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(0),
    name: "F32",
    geometry: Geometry::blocks(1, 4),
    quantized: false,
    requires_importance: false,
    decode: None,
    encode: None,
    check: |_| None,
    kernel: kernel::kernel,
    doc: "IEEE single precision",
};
