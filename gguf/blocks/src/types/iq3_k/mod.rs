//! `IQ3_K`: super-blocks of 256 values; each 16 of them have a scale of four bits and a sign and one of two sets of
//! eight uneven levels.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ik::{self, LEVELS_3};
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ3K {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// Bit `k` moves the levels of sub-block `k` up.
    extra: [u8; 2],
    /// Bit `k` makes the scale of sub-block `k` negative.
    scales_h: [u8; 2],
    /// Of the scale of each 16 values, an odd number, the bits above the lowest.
    scales_l: [u8; 8],
    /// The low two bits of element `i` at `2 * (i % 128 / 32)` of byte `32 * (i / 128) + i % 32`.
    qs: [u8; 64],
    /// The third bit of element `i` is bit `i / 32` of byte `i % 32`.
    qh: [u8; 32],
}

const _: () = assert!(size_of::<IQ3K>() == 110);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(138),
    name: "IQ3_K",
    geometry: Geometry::blocks(256, size_of::<IQ3K>()),
    decode: Some(decode),
    check,
    doc: "8 uneven levels of two sets; signed 4-bit scales for 16 values each",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ3K, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        let codes =
            ik::codes(|ib, j| b.qs[32 * (ib / 4) + j] >> (2 * (ib % 4)) & 3 | (b.qh[j] >> ib & 1) << 2);
        ik::subs::<16>(&codes, out, |k, codes, out| {
            let magnitude = 2 * ik::nibble(&b.scales_l, k) as i8 + 1;
            let negative = ik::bit(b.scales_h, k) == 1;
            let scale = d * f32::from(if negative { -magnitude } else { magnitude });
            ik::levels(ik::table(&LEVELS_3, ik::bit(b.extra, k)), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ3K>(bytes, |b| rows::is_finite(b.d))
}
