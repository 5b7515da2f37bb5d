//! `Q8_K_R16`: 16 interleaved rows of what is `Q8_K` otherwise. The scales are halves, and there are no sums.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 16 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q8KR16 {
    /// The scale of each row, a half.
    d: [[u8; 2]; 16],
    /// Four codes, plus 128, of each row after the other.
    qs: [[[u8; 4]; 16]; 64],
}

const _: () = assert!(size_of::<Q8KR16>() == 4128);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(397),
    name: "Q8_K_R16",
    geometry: Geometry::interleaved(16, 256, size_of::<Q8KR16>()),
    decode: Some(decode),
    check,
    doc: "Q8_K, 16 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q8KR16, 0, 16, 256>(bytes, out, |_, b, k, out| {
        let d = half(b.d[k]);
        for (e, v) in out.iter_mut().enumerate() {
            *v = d * f32::from(i16::from(b.qs[e / 4][k][e % 4]) - 128);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<Q8KR16, 0, 16>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
