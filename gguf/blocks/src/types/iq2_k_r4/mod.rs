//! `IQ2_K_R4`: 4 interleaved rows of what is `IQ2_K` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik::{self, LEVELS_2};
use crate::interleaved;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2KR4 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 4],
    /// Bit `ib` moves levels of 32 elements up: of their first 16 in the bytes of four rows, of the others in four more.
    extra: [u8; 8],
    /// The scales, plus 8, in the order of `ik::nibble_of_halves`.
    scales: [u8; 32],
    /// Of each 32 elements the codes, in the order of `interleaved::two_bits`.
    qs: [[u8; 32]; 8],
}

const _: () = assert!(size_of::<IQ2KR4>() == 304);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(337),
    name: "IQ2_K_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<IQ2KR4>()),
    decode: Some(decode),
    check,
    doc: "IQ2_K, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ2KR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let d = half(b.d[k]);
        let codes = interleaved::codes(&b.qs, k, interleaved::two_bits);
        ik::subs::<16>(&codes, out, |sub, codes, out| {
            let up = b.extra[4 * (sub % 2) + k] >> (sub / 2);
            let stored = ik::nibble_of_halves(&b.scales, 4 * sub + k);
            let scale = d * f32::from(stored as i8 - 8);
            ik::levels(ik::table(&LEVELS_2, up), scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<IQ2KR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
