//! `BF16`: TODO

mod kernel;

use crate::{Format, Geometry, TypeId};

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(30),
    name: "BF16",
    geometry: Geometry::blocks(1, 2),
    quantized: false,
    requires_importance: false,
    decode: None,
    encode: None,
    check: |_| None,
    kernel: kernel::kernel,
    doc: "The upper half of IEEE single precision",
};
