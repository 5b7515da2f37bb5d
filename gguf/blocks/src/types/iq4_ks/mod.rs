//! `IQ4_KS`: a row has a scale; super-blocks of 256 values, each 32 of them with a scale of seven bits and one of two
//! sets of 16 uneven levels.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::ik::{self, LEVELS_4};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ4KS {
    /// Of each 32 values: in the lowest bit whether the levels are moved up; the rest is the scale, plus 127.
    scales: [u8; 8],
    /// Of each 32 values: element `j` in the low four bits of byte `j`, element `j + 16` in the high four.
    qs: [u8; 128],
}

const _: () = assert!(size_of::<IQ4KS>() == 136);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(144),
    name: "IQ4_KS",
    geometry: Geometry::blocks(256, size_of::<IQ4KS>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "16 uneven levels of two sets; 7-bit scales for 32 values each; one scale a row",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ4KS, 4, 1, 256>(bytes, out, |d, b, _, out| {
        let codes = ik::codes(|ib, j| b.qs[16 * ib + j % 16] >> (j / 16 * 4) & 15);
        ik::subs::<32>(&codes, out, |k, codes, out| {
            let (scale, up) = ik::odd_scale(single(*d), b.scales[k]);
            ik::levels(ik::table(&LEVELS_4, up), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ4KS, 4, 1>(bytes, groups::is_finite_single)
}
