//! `IQ4_K_R4`: 4 interleaved rows of what is `IQ4_K` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik::{self, LEVELS_4};
use crate::interleaved;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ4KR4 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 4],
    /// Bit `ib` moves levels of 32 elements up: of their first 16 in the bytes of four rows, of the others in four more.
    extra: [u8; 8],
    /// The high two bits of the scales, in the order of `ik::pair_of_quarters`.
    scales_h: [u8; 16],
    /// The low four bits of the scales, in the order of `ik::nibble_of_halves`.
    scales_l: [u8; 32],
    /// Of each 32 elements the codes, in the order of `interleaved::nibble`.
    qs: [[u8; 64]; 8],
}

const _: () = assert!(size_of::<IQ4KR4>() == 576);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(339),
    name: "IQ4_K_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<IQ4KR4>()),
    decode: Some(decode),
    check,
    doc: "IQ4_K, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ4KR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let d = half(b.d[k]);
        let codes = interleaved::codes(&b.qs, k, interleaved::nibble);
        ik::subs::<16>(&codes, out, |sub, codes, out| {
            let up = b.extra[4 * (sub % 2) + k] >> (sub / 2);
            let at = 4 * sub + k;
            let stored = ik::nibble_of_halves(&b.scales_l, at) | ik::pair_of_quarters(&b.scales_h, at) << 4;
            let scale = d * f32::from(stored as i8 - 32);
            ik::levels(ik::table(&LEVELS_4, up), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<IQ4KR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
