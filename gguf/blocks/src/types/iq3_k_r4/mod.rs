//! `IQ3_K_R4`: 4 interleaved rows of what is `IQ3_K` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik::{self, LEVELS_3};
use crate::interleaved;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ3KR4 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 4],
    /// Bit `ib` moves levels of 32 elements up: of their first 16 in the bytes of four rows, of the others in four more.
    extra: [u8; 8],
    /// Which scales are negative: scale `i` is bit `i / 8` of byte `i % 8`.
    scales_h: [u8; 8],
    /// Of the scales, odd numbers, the bits above the lowest, in the order of `ik::nibble_of_halves`.
    scales_l: [u8; 32],
    /// Of each 32 elements the low two bits of the codes, in the order of `interleaved::two_bits`.
    qs: [[u8; 32]; 8],
    /// Of each 32 elements the third bits of the codes, in the order of `interleaved::third_bit`.
    qh: [[u8; 16]; 8],
}

const _: () = assert!(size_of::<IQ3KR4>() == 440);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(338),
    name: "IQ3_K_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<IQ3KR4>()),
    decode: Some(decode),
    check,
    doc: "IQ3_K, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ3KR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let d = half(b.d[k]);
        let mut codes = interleaved::codes(&b.qs, k, interleaved::two_bits);
        interleaved::add_bits(&mut codes, 2, &b.qh, k, interleaved::third_bit);
        ik::subs::<16>(&codes, out, |sub, codes, out| {
            let up = b.extra[4 * (sub % 2) + k] >> (sub / 2);
            let at = 4 * sub + k;
            let magnitude = 2 * ik::nibble_of_halves(&b.scales_l, at) as i8 + 1;
            let negative = b.scales_h[at % 8] >> (at / 8) & 1 == 1;
            let scale = d * f32::from(if negative { -magnitude } else { magnitude });
            ik::levels(ik::table(&LEVELS_3, up), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<IQ3KR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
