//! `IQ5_K`: super-blocks of 256 values; each 16 of them have a 6-bit scale and one of two sets of 32 uneven levels.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ik::{self, LEVELS_5};
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ5K {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// Bit `k` moves the levels of sub-block `k` up.
    extra: [u8; 2],
    /// The high two bits of the scale of each 16 values.
    scales_h: [u8; 4],
    /// The low four bits of the scale of each 16 values, plus 32.
    scales_l: [u8; 8],
    /// Low four bits: of each 64 values, element `j` in the low half of byte `j`, element `j + 32` in the high half.
    qs: [u8; 128],
    /// The fifth bit of element `i` is bit `i / 32` of byte `i % 32`.
    qh: [u8; 32],
}

const _: () = assert!(size_of::<IQ5K>() == 176);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(140),
    name: "IQ5_K",
    geometry: Geometry::blocks(256, size_of::<IQ5K>()),
    decode: Some(decode),
    check,
    doc: "32 uneven levels of two sets; 6-bit scales for 16 values each",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ5K, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        let codes =
            ik::codes(|ib, j| b.qs[32 * (ib / 2) + j] >> (ib % 2 * 4) & 15 | (b.qh[j] >> ib & 1) << 4);
        ik::subs::<16>(&codes, out, |k, codes, out| {
            let stored = ik::nibble(&b.scales_l, k) | ik::pair(&b.scales_h, k) << 4;
            let scale = d * f32::from(stored as i8 - 32);
            ik::levels(ik::table(&LEVELS_5, ik::bit(b.extra, k)), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ5K>(bytes, |b| rows::is_finite(b.d))
}
