//! `Q2_K`: TODO

mod kernel;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q2K {
    /// Of each 16 values: the scale in the low four bits, the minimum in the high four.
    scales: [u8; 16],
    /// Element `i`: two bits at `2 * (i % 128 / 32)` of byte `32 * (i / 128) + i % 32`.
    qs: [u8; 64],
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// Unit of the minima, a half.
    dmin: [u8; 2],
}

const _: () = assert!(size_of::<Q2K>() == 84);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(10),
    name: "Q2_K",
    geometry: Geometry::blocks(256, size_of::<Q2K>()),
    quantized: true,
    requires_importance: false,
    decode: None,
    encode: None,
    check: |_| None,
    kernel: kernel::kernel,
    doc: "2-bit integers; 4-bit scales and minima for 16 values each",
};
