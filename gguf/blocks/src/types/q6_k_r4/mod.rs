//! `Q6_K_R4`: 4 interleaved rows of what is `Q6_K` otherwise.
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
struct Q6KR4 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 4],
    /// The scale of each 16 elements of four rows.
    scales: [[[i8; 4]; 2]; 8],
    /// Of each 32 elements the high two bits of the codes, in the order of `interleaved::high_two_bits`.
    qh: [[u8; 32]; 8],
    /// Of each 32 elements the low four bits of the codes, in the order of `interleaved::nibble`.
    ql: [[u8; 64]; 8],
}

const _: () = assert!(size_of::<Q6KR4>() == 840);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(214),
    name: "Q6_K_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<Q6KR4>()),
    decode: Some(decode),
    check,
    doc: "Q6_K, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q6KR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let d = half(b.d[k]);
        let mut codes = interleaved::codes(&b.ql, k, interleaved::nibble);
        interleaved::add_bits(&mut codes, 4, &b.qh, k, interleaved::high_two_bits);
        ik::subs::<16>(&codes, out, |sub, codes, out| {
            let scale = d * f32::from(b.scales[sub / 2][sub % 2][k]);
            ik::integers(32, scale, codes, out);
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<Q6KR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
