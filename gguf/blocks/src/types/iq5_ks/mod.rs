//! `IQ5_KS`: a row has a scale; super-blocks of 256 values, each 32 of them with a scale of seven bits and one of two
//! sets of 32 uneven levels.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::ik::{self, LEVELS_5};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ5KS {
    /// Of each 32 values: in the lowest bit whether the levels are moved up; the rest is the scale, plus 127.
    scales: [u8; 8],
    /// Low four bits: of each 64 values, element `j` in the low half of byte `j`, element `j + 32` in the high half.
    qs: [u8; 128],
    /// The fifth bit of element `i` is bit `i / 32` of byte `i % 32`.
    qh: [u8; 32],
}

const _: () = assert!(size_of::<IQ5KS>() == 168);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(152),
    name: "IQ5_KS",
    geometry: Geometry::blocks(256, size_of::<IQ5KS>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "32 uneven levels of two sets; 7-bit scales for 32 values each; one scale a row",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ5KS, 4, 1, 256>(bytes, out, |d, b, _, out| {
        let codes =
            ik::codes(|ib, j| b.qs[32 * (ib / 2) + j] >> (ib % 2 * 4) & 15 | (b.qh[j] >> ib & 1) << 4);
        ik::subs::<32>(&codes, out, |k, codes, out| {
            let (scale, up) = ik::odd_scale(single(*d), b.scales[k]);
            ik::levels(ik::table(&LEVELS_5, up), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ5KS, 4, 1>(bytes, groups::is_finite_single)
}
