//! `Q4_K`: TODO

mod kernel;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q4K {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// Unit of the minima, a half.
    dmin: [u8; 2],
    /// Eight 6-bit scales and minima: see `six_bit`.
    scales: [u8; 12],
    /// Of each 64 elements: element `e < 32` in the low four bits of byte `e`, element `32 + e` in the high four.
    qs: [u8; 128],
}

const _: () = assert!(size_of::<Q4K>() == 144);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(12),
    name: "Q4_K",
    geometry: Geometry::blocks(256, size_of::<Q4K>()),
    quantized: true,
    requires_importance: false,
    decode: None,
    encode: None,
    check: |_| None,
    kernel: kernel::kernel,
    doc: "4-bit integers; 6-bit scales and minima for 32 values each",
};
