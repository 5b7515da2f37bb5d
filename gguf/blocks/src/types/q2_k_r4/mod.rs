//! `Q2_K_R4`: 4 interleaved rows of what is `Q2_K` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik;
use crate::interleaved;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q2KR4 {
    /// Units of the scales of four rows, then of the minima, halves.
    d: [[u8; 2]; 8],
    /// Of each 16 elements of four rows: the scale in the low four bits, the minimum in the high.
    scales: [[[u8; 4]; 2]; 8],
    /// Of each 32 elements the codes, in the order of `interleaved::two_bits`.
    qs: [[u8; 32]; 8],
}

const _: () = assert!(size_of::<Q2KR4>() == 336);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(210),
    name: "Q2_K_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<Q2KR4>()),
    decode: Some(decode),
    check,
    doc: "Q2_K, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q2KR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let (d, dmin) = (half(b.d[k]), half(b.d[4 + k]));
        let codes = interleaved::codes(&b.qs, k, interleaved::two_bits);
        ik::subs::<16>(&codes, out, |sub, codes, out| {
            let packed = b.scales[sub / 2][sub % 2][k];
            let min = dmin * f32::from(packed >> 4);
            ik::affine(d * f32::from(packed & 15), min, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<Q2KR4, 0, 4>(bytes, |_, b, k| {
        rows::is_finite(b.d[k]) && rows::is_finite(b.d[4 + k])
    })
}
