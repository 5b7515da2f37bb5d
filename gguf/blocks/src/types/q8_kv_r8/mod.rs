//! `Q8_KV_R8`: 8 interleaved rows of what is `Q8_KV` otherwise. The rows have no sums.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::{Format, Geometry, TypeId};

/// 32 values of each of 8 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q8KVR8 {
    /// Four codes of each row after the other.
    qs: [[[i8; 4]; 8]; 8],
}

const _: () = assert!(size_of::<Q8KVR8>() == 256);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(398),
    name: "Q8_KV_R8",
    geometry: Geometry::interleaved(8, 32, size_of::<Q8KVR8>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "Q8_KV, 8 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q8KVR8, 4, 8, 32>(bytes, out, |d, b, k, out| {
        for (e, v) in out.iter_mut().enumerate() {
            *v = f32::from(b.qs[e / 4][k][e % 4]) * single(*d);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<Q8KVR8, 4, 8>(bytes, groups::is_finite_single)
}
