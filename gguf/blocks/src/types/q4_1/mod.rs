//! `Q4_1`: TODO

mod kernel;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Format, Geometry, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q4_1 {
    /// The scale, a half.
    d: [u8; 2],
    /// The minimum, a half.
    m: [u8; 2],
    /// Element `j` in the low four bits of byte `j`, element `j + 16` in the high four.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<Q4_1>() == 20);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(3),
    name: "Q4_1",
    geometry: Geometry::blocks(32, size_of::<Q4_1>()),
    quantized: true,
    requires_importance: false,
    decode: None,
    encode: None,
    check: |_| None,
    kernel: kernel::kernel,
    doc: "4-bit integers with one scale and one minimum for 32 values",
};
