//! `IQ3_KS`: a row has a scale; super-blocks of 256 values, each 32 of them with a 5-bit scale and one of two sets of
//! eight uneven levels.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik::{self, LEVELS_3};
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ3KS {
    /// Bit `k` is the fifth bit of the scale of sub-block `k`; bit `8 + k` moves its levels up.
    extra: [u8; 2],
    /// The low four bits of the scales, plus 16: of sub-blocks 0 to 3 in the low halves, of 4 to 7 in the high.
    scales: [u8; 4],
    /// The low two bits of element `i` at `2 * (i % 128 / 32)` of byte `32 * (i / 128) + i % 32`.
    qs: [u8; 64],
    /// The third bit of element `i` is bit `i / 32` of byte `i % 32`.
    qh: [u8; 32],
}

const _: () = assert!(size_of::<IQ3KS>() == 102);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(156),
    name: "IQ3_KS",
    geometry: Geometry::blocks(256, size_of::<IQ3KS>()).with_header(2),
    decode: Some(decode),
    check,
    doc: "8 uneven levels of two sets; 5-bit scales for 32 values each; one scale a row",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ3KS, 2, 1, 256>(bytes, out, |d, b, _, out| {
        let d = half(*d);
        let codes =
            ik::codes(|ib, j| b.qs[32 * (ib / 4) + j] >> (2 * (ib % 4)) & 3 | (b.qh[j] >> ib & 1) << 2);
        ik::subs::<32>(&codes, out, |k, codes, out| {
            let stored = ik::nibble_of_halves(&b.scales, k) | ik::bit(b.extra, k) << 4;
            let scale = d * f32::from(stored as i8 - 16);
            ik::levels(ik::table(&LEVELS_3, ik::bit(b.extra, 8 + k)), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ3KS, 2, 1>(bytes, rows::is_finite)
}
