//! `IQ4_XS_R8`: 8 interleaved rows of what is `IQ4_XS` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik;
use crate::iq4::LEVELS;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 8 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ4XSR8 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 8],
    /// The high two bits of the scales, in the order of `ik::pair_of_quarters`.
    scales_h: [u8; 16],
    /// The low four bits of the scales, in the order of `ik::nibble_of_halves`.
    scales_l: [u8; 32],
    /// Of each 32 elements: of eight rows four bytes after the other, whose two halves are 4 elements apart.
    qs: [[u8; 128]; 8],
}

const _: () = assert!(size_of::<IQ4XSR8>() == 1088);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(223),
    name: "IQ4_XS_R8",
    geometry: Geometry::interleaved(8, 256, size_of::<IQ4XSR8>()),
    decode: Some(decode),
    check,
    doc: "IQ4_XS, 8 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ4XSR8, 0, 8, 256>(bytes, out, |_, b, k, out| {
        let d = half(b.d[k]);
        let codes = ik::codes(|ib, e| b.qs[ib][32 * (e / 8) + 4 * k + e % 4] >> (e / 4 % 2 * 4) & 15);
        ik::subs::<32>(&codes, out, |sub, codes, out| {
            let at = 8 * sub + k;
            let stored = ik::nibble_of_halves(&b.scales_l, at) | ik::pair_of_quarters(&b.scales_h, at) << 4;
            ik::levels(&LEVELS, d * f32::from(stored as i8 - 32), codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<IQ4XSR8, 0, 8>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
