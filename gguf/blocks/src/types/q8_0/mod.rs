//! `Q8_0`: TODO

mod kernel;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Format, Geometry, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q8_0 {
    /// The scale, a half.
    d: [u8; 2],
    /// The values in order.
    qs: [i8; 32],
}

const _: () = assert!(size_of::<Q8_0>() == 34);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(8),
    name: "Q8_0",
    geometry: Geometry::blocks(32, size_of::<Q8_0>()),
    quantized: true,
    requires_importance: false,
    decode: None,
    encode: None,
    check: |_| None,
    kernel: kernel::kernel,
    doc: "8-bit integers with one scale for 32 values",
};
