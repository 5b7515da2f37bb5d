//! `Q4_0_R8`: 8 interleaved rows of what is `Q4_0` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik;
use crate::interleaved::far_nibble;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 32 values of each of 8 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q4_0R8 {
    /// The scale of each row, a half.
    d: [[u8; 2]; 8],
    /// The codes, in the order of `interleaved::far_nibble`.
    qs: [u8; 128],
}

const _: () = assert!(size_of::<Q4_0R8>() == 144);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(202),
    name: "Q4_0_R8",
    geometry: Geometry::interleaved(8, 32, size_of::<Q4_0R8>()),
    decode: Some(decode),
    check,
    doc: "Q4_0, 8 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q4_0R8, 0, 8, 32>(bytes, out, |_, b, k, out| {
        let codes: [u8; 32] = std::array::from_fn(|e| far_nibble(8, &b.qs, k, e));
        ik::integers(8, half(b.d[k]), &codes, out);
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<Q4_0R8, 0, 8>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
