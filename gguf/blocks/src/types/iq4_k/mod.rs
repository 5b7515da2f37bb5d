//! `IQ4_K`: super-blocks of 256 values; each 16 of them have a 6-bit scale and one of two sets of 16 uneven levels.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ik::{self, LEVELS_4};
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ4K {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// Bit `k` moves the levels of sub-block `k` up.
    extra: [u8; 2],
    /// The high two bits of the scale of each 16 values.
    scales_h: [u8; 4],
    /// The low four bits of the scale of each 16 values, plus 32.
    scales_l: [u8; 8],
    /// Of each 32 values: element `j` in the low four bits of byte `j`, element `j + 16` in the high four.
    qs: [u8; 128],
}

const _: () = assert!(size_of::<IQ4K>() == 144);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(139),
    name: "IQ4_K",
    geometry: Geometry::blocks(256, size_of::<IQ4K>()),
    decode: Some(decode),
    check,
    doc: "16 uneven levels of two sets; 6-bit scales for 16 values each",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ4K, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        let codes = ik::codes(|ib, j| b.qs[16 * ib + j % 16] >> (j / 16 * 4) & 15);
        ik::subs::<16>(&codes, out, |k, codes, out| {
            let stored = ik::nibble(&b.scales_l, k) | ik::pair(&b.scales_h, k) << 4;
            let scale = d * f32::from(stored as i8 - 32);
            ik::levels(ik::table(&LEVELS_4, ik::bit(b.extra, k)), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ4K>(bytes, |b| rows::is_finite(b.d))
}
