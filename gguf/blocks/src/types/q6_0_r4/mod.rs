//! `Q6_0_R4`: 4 interleaved rows of what is `Q6_0` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik;
use crate::interleaved::{nibble, two_bits};
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 32 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q6_0R4 {
    /// The scale of each row, a half.
    d: [[u8; 2]; 4],
    /// The high two bits, in the order of `interleaved::two_bits`.
    qh: [u8; 32],
    /// Low four bits, in the order of `interleaved::nibble`.
    qs: [u8; 64],
}

const _: () = assert!(size_of::<Q6_0R4>() == 104);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(233),
    name: "Q6_0_R4",
    geometry: Geometry::interleaved(4, 32, size_of::<Q6_0R4>()),
    decode: Some(decode),
    check,
    doc: "Q6_0, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q6_0R4, 0, 4, 32>(bytes, out, |_, b, k, out| {
        let codes: [u8; 32] = std::array::from_fn(|e| nibble(&b.qs, k, e) | two_bits(&b.qh, k, e) << 4);
        ik::integers(32, half(b.d[k]), &codes, out);
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<Q6_0R4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
