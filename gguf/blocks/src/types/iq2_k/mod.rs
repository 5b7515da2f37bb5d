//! `IQ2_K`: super-blocks of 256 values; each 16 of them have a 4-bit scale and one of two sets of four uneven levels.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ik::{self, LEVELS_2};
use crate::packing::from_two_bits;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2K {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// Bit `k` moves the levels of sub-block `k` up.
    extra: [u8; 2],
    /// The scale of each 16 values, plus 8.
    scales: [u8; 8],
    /// Element `i`: two bits at `2 * (i % 128 / 32)` of byte `32 * (i / 128) + i % 32`.
    qs: [u8; 64],
}

const _: () = assert!(size_of::<IQ2K>() == 76);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(137),
    name: "IQ2_K",
    geometry: Geometry::blocks(256, size_of::<IQ2K>()),
    decode: Some(decode),
    check,
    doc: "4 uneven levels of two sets; 4-bit scales for 16 values each",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ2K, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        ik::subs::<16>(&from_two_bits(&b.qs), out, |k, codes, out| {
            let scale = d * f32::from(ik::nibble(&b.scales, k) as i8 - 8);
            ik::levels(ik::table(&LEVELS_2, ik::bit(b.extra, k)), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ2K>(bytes, |b| rows::is_finite(b.d))
}
