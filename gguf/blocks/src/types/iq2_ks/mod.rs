//! `IQ2_KS`: a row has a scale; super-blocks of 256 values, each 32 of them with a 5-bit scale and one of two sets of
//! four uneven levels.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik::{self, LEVELS_2};
use crate::packing::from_two_bits;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2KS {
    /// Bit `k` moves the levels of sub-block `k` up; bit `8 + k` is the fifth bit of its scale.
    extra: [u8; 2],
    /// The low four bits of the scale of each 32 values, plus 16.
    scales: [u8; 4],
    /// Element `i`: two bits at `2 * (i % 128 / 32)` of byte `32 * (i / 128) + i % 32`.
    qs: [u8; 64],
}

const _: () = assert!(size_of::<IQ2KS>() == 70);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(145),
    name: "IQ2_KS",
    geometry: Geometry::blocks(256, size_of::<IQ2KS>()).with_header(2),
    decode: Some(decode),
    check,
    doc: "4 uneven levels of two sets; 5-bit scales for 32 values each; one scale a row",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ2KS, 2, 1, 256>(bytes, out, |d, b, _, out| {
        let d = half(*d);
        ik::subs::<32>(&from_two_bits(&b.qs), out, |k, codes, out| {
            let stored = ik::nibble(&b.scales, k) | ik::bit(b.extra, 8 + k) << 4;
            let scale = d * f32::from(stored as i8 - 16);
            ik::levels(ik::table(&LEVELS_2, ik::bit(b.extra, k)), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ2KS, 2, 1>(bytes, rows::is_finite)
}
