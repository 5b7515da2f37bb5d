//! `Q8_1`: 32 values as `d · q`, and their sum. Activations at run time; no model file holds it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q8_1 {
    /// The scale, a half.
    d: [u8; 2],
    /// The sum of the values, a half; not needed to decode.
    s: [u8; 2],
    /// The codes.
    qs: [i8; 32],
}

const _: () = assert!(size_of::<Q8_1>() == 36);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(9),
    name: "Q8_1",
    geometry: Geometry::blocks(32, size_of::<Q8_1>()),
    decode: Some(decode),
    check,
    doc: "8-bit integers with one scale and their sum for 32 values, for activations",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q8_1, 32>(bytes, out, |b, out| {
        let d = half(b.d);
        for (v, q) in out.iter_mut().zip(b.qs) {
            *v = f32::from(q) * d;
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q8_1>(bytes, |b| rows::is_finite(b.d) && rows::is_finite(b.s))
}
