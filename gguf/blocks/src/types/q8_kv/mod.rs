//! `Q8_KV`: 8-bit integers, times a scale of the row. A KV cache at run time.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::{Format, Geometry, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q8KV {
    /// The codes.
    qs: [i8; 32],
}

const _: () = assert!(size_of::<Q8KV>() == 32);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(151),
    name: "Q8_KV",
    geometry: Geometry::blocks(32, size_of::<Q8KV>()).with_header(8),
    decode: Some(decode),
    check,
    doc: "8-bit integers with one scale a row, for KV caches",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q8KV, 8, 1, 32>(bytes, out, |head, b, _, out| {
        let d = scale(*head);
        for (v, q) in out.iter_mut().zip(b.qs) {
            *v = f32::from(q) * d;
        }
    });
}

/// The scale in the header of a row; the sum of the codes stands behind it.
fn scale(head: [u8; 8]) -> f32 {
    let [d @ .., _, _, _, _] = head;
    single(d)
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<Q8KV, 8, 1>(bytes, |head| scale(head).is_finite())
}
