//! `Q3_K`: TODO

mod kernel;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q3K {
    /// The third bit of element `i` is bit `i / 32` of byte `i % 32`.
    hmask: [u8; 32],
    /// Element `i`: two bits at `2 * (i % 128 / 32)` of byte `32 * (i / 128) + i % 32`.
    qs: [u8; 64],
    /// Sixteen 6-bit scales: see `scales`.
    scales: [u8; 12],
    /// Unit of the scales, a half.
    d: [u8; 2],
}

const _: () = assert!(size_of::<Q3K>() == 110);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(11),
    name: "Q3_K",
    geometry: Geometry::blocks(256, size_of::<Q3K>()),
    quantized: true,
    requires_importance: false,
    decode: None,
    encode: None,
    check: |_| None,
    kernel: kernel::kernel,
    doc: "3-bit integers; 6-bit scales for 16 values each",
};
