//! `IQ4_KS_R4`: 4 interleaved rows of what is `IQ4_KS` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::ik::{self, LEVELS_4};
use crate::interleaved;
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ4KSR4 {
    /// Of each 32 elements of four rows: in the lowest bit whether the levels are moved up; the rest is the scale,
    /// plus 127.
    scales: [[u8; 4]; 8],
    /// Of each 32 elements the codes, in the order of `interleaved::nibble`.
    qs: [[u8; 64]; 8],
}

const _: () = assert!(size_of::<IQ4KSR4>() == 544);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(344),
    name: "IQ4_KS_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<IQ4KSR4>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "IQ4_KS, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ4KSR4, 4, 4, 256>(bytes, out, |d, b, k, out| {
        let codes = interleaved::codes(&b.qs, k, interleaved::nibble);
        ik::subs::<32>(&codes, out, |sub, codes, out| {
            let (scale, up) = ik::odd_scale(single(*d), b.scales[sub][k]);
            ik::levels(ik::table(&LEVELS_4, up), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ4KSR4, 4, 4>(bytes, groups::is_finite_single)
}
