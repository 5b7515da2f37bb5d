//! `Q8_K_R8`: 8 interleaved rows of what is `Q8_K` otherwise. The scales are halves, and there are no sums.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 8 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q8KR8 {
    /// The scale of each row, a half.
    d: [[u8; 2]; 8],
    /// Four codes of each row after the other.
    qs: [[[i8; 4]; 8]; 64],
}

const _: () = assert!(size_of::<Q8KR8>() == 2064);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(399),
    name: "Q8_K_R8",
    geometry: Geometry::interleaved(8, 256, size_of::<Q8KR8>()),
    decode: Some(decode),
    check,
    doc: "Q8_K, 8 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q8KR8, 0, 8, 256>(bytes, out, |_, b, k, out| {
        let d = half(b.d[k]);
        for (e, v) in out.iter_mut().enumerate() {
            *v = d * f32::from(b.qs[e / 4][k][e % 4]);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<Q8KR8, 0, 8>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
