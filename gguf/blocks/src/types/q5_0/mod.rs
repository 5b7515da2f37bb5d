//! `Q5_0`: TODO

mod kernel;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Format, Geometry, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q5_0 {
    /// The scale, a half.
    d: [u8; 2],
    /// The fifth bit of element `i` is bit `i`, little-endian.
    qh: [u8; 4],
    /// Element `j` in the low four bits of byte `j`, element `j + 16` in the high four.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<Q5_0>() == 22);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(6),
    name: "Q5_0",
    geometry: Geometry::blocks(32, size_of::<Q5_0>()),
    quantized: true,
    requires_importance: false,
    decode: None,
    encode: None,
    check: |_| None,
    kernel: kernel::kernel,
    doc: "5-bit integers with one scale for 32 values",
};
