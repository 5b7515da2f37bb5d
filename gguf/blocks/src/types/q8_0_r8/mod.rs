//! `Q8_0_R8`: 8 interleaved rows of what is `Q8_0` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 32 values of each of 8 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q8_0R8 {
    /// The scale of each row, a half.
    d: [[u8; 2]; 8],
    /// Four codes of each row after the other.
    qs: [[[i8; 4]; 8]; 8],
}

const _: () = assert!(size_of::<Q8_0R8>() == 272);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(208),
    name: "Q8_0_R8",
    geometry: Geometry::interleaved(8, 32, size_of::<Q8_0R8>()),
    decode: Some(decode),
    check,
    doc: "Q8_0, 8 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q8_0R8, 0, 8, 32>(bytes, out, |_, b, k, out| {
        let d = half(b.d[k]);
        for (e, v) in out.iter_mut().enumerate() {
            *v = d * f32::from(b.qs[e / 4][k][e % 4]);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<Q8_0R8, 0, 8>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
