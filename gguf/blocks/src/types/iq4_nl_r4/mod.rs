//! `IQ4_NL_R4`: 4 interleaved rows of what is `IQ4_NL` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik;
use crate::interleaved::nibble;
use crate::iq4::LEVELS;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 32 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ4NLR4 {
    /// The scale of each row, a half.
    d: [[u8; 2]; 4],
    /// The codes, in the order of `interleaved::nibble`.
    qs: [u8; 64],
}

const _: () = assert!(size_of::<IQ4NLR4>() == 72);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(220),
    name: "IQ4_NL_R4",
    geometry: Geometry::interleaved(4, 32, size_of::<IQ4NLR4>()),
    decode: Some(decode),
    check,
    doc: "IQ4_NL, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ4NLR4, 0, 4, 32>(bytes, out, |_, b, k, out| {
        let codes: [u8; 32] = std::array::from_fn(|e| nibble(&b.qs, k, e));
        ik::levels(&LEVELS, half(b.d[k]), &codes, out);
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<IQ4NLR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
