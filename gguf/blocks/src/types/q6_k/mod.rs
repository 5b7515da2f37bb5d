//! `Q6_K`: TODO

mod kernel;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q6K {
    /// Low four bits: see `decode_block`.
    ql: [u8; 128],
    /// High two bits, four elements a byte.
    qh: [u8; 64],
    /// The scale of each 16 values.
    scales: [i8; 16],
    /// Unit of the scales, a half.
    d: [u8; 2],
}

const _: () = assert!(size_of::<Q6K>() == 210);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(14),
    name: "Q6_K",
    geometry: Geometry::blocks(256, size_of::<Q6K>()),
    quantized: true,
    requires_importance: false,
    decode: None,
    encode: None,
    check: |_| None,
    kernel: kernel::kernel,
    doc: "6-bit integers; 8-bit scales for 16 values each",
};
