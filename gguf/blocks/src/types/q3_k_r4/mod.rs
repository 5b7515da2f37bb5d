//! `Q3_K_R4`: 4 interleaved rows of what is `Q3_K` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik;
use crate::interleaved;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q3KR4 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 4],
    /// The high two bits of the scales, in the order of `ik::pair_of_quarters`.
    scales_h: [u8; 16],
    /// The low four bits of the scales, in the order of `ik::nibble_of_halves`.
    scales_l: [u8; 32],
    /// Of each 32 elements the third bits of the codes, in the order of `interleaved::third_bit`.
    qh: [[u8; 16]; 8],
    /// Of each 32 elements the low two bits of the codes, in the order of `interleaved::two_bits`.
    qs: [[u8; 32]; 8],
}

const _: () = assert!(size_of::<Q3KR4>() == 440);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(211),
    name: "Q3_K_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<Q3KR4>()),
    decode: Some(decode),
    check,
    doc: "Q3_K, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q3KR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let d = half(b.d[k]);
        let mut codes = interleaved::codes(&b.qs, k, interleaved::two_bits);
        interleaved::add_bits(&mut codes, 2, &b.qh, k, interleaved::third_bit);
        ik::subs::<16>(&codes, out, |sub, codes, out| {
            let at = 4 * sub + k;
            let stored = ik::nibble_of_halves(&b.scales_l, at) | ik::pair_of_quarters(&b.scales_h, at) << 4;
            ik::integers(4, d * f32::from(stored as i8 - 32), codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<Q3KR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
