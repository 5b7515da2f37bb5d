//! `Q5_K_R4`: 4 interleaved rows of what is `Q5_K` otherwise.
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
struct Q5KR4 {
    /// Units of the scales of four rows, then of the minima, halves.
    d: [[u8; 2]; 8],
    /// High bits, two of a scale and two of a minimum together, in the order of `ik::nibble_of_halves`.
    scales_h: [u8; 16],
    /// Of each 32 elements of four rows: the low bits of the scale in the low half, of the minimum in the high.
    scales_l: [[u8; 4]; 8],
    /// Of each 32 elements the fifth bits of the codes, in the order of `interleaved::fifth_bit`.
    qh: [[u8; 16]; 8],
    /// Of each 32 elements the low four bits of the codes, in the order of `interleaved::nibble`.
    qs: [[u8; 64]; 8],
}

const _: () = assert!(size_of::<Q5KR4>() == 704);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(213),
    name: "Q5_K_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<Q5KR4>()),
    decode: Some(decode),
    check,
    doc: "Q5_K, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q5KR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let (d, dmin) = (half(b.d[k]), half(b.d[4 + k]));
        let mut codes = interleaved::codes(&b.qs, k, interleaved::nibble);
        interleaved::add_bits(&mut codes, 4, &b.qh, k, interleaved::fifth_bit);
        ik::subs::<32>(&codes, out, |sub, codes, out| {
            let (low, high) = (b.scales_l[sub][k], ik::nibble_of_halves(&b.scales_h, 4 * sub + k));
            let scale = d * f32::from(low & 15 | (high & 3) << 4);
            let min = dmin * f32::from(low >> 4 | high >> 2 << 4);
            ik::affine(scale, min, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<Q5KR4, 0, 4>(bytes, |_, b, k| {
        rows::is_finite(b.d[k]) && rows::is_finite(b.d[4 + k])
    })
}
