//! `Q8_K`: 256 values as `d · q` with `d` in single precision. Activations at run time; no model file holds it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{is_finite_single, single};
use crate::rows;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q8K {
    /// The scale, a single.
    d: [u8; 4],
    /// The codes.
    qs: [i8; 256],
    /// Sums of 16 codes each, 16-bit integers; not needed to decode.
    bsums: [[u8; 2]; 16],
}

const _: () = assert!(size_of::<Q8K>() == 292);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(15),
    name: "Q8_K",
    geometry: Geometry::blocks(256, size_of::<Q8K>()),
    decode: Some(decode),
    check,
    doc: "8-bit integers with one scale for 256 values and sums of 16, for activations",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q8K, 256>(bytes, out, |b, out| {
        let d = single(b.d);
        for (v, q) in out.iter_mut().zip(b.qs) {
            *v = d * f32::from(q);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q8K>(bytes, |b| is_finite_single(b.d))
}
