//! `IQ4_KSS`: a row has a scale; super-blocks of 256 values, each 32 of them with a scale of seven bits and one of two
//! sets of 16 uneven levels. Scales take a bit of every fourth code: the codes of a word have an even number of bits
//! set, and one of them is left out.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::ik::{self, LEVELS_4};
use crate::packing::from_nibbles;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ4KSS {
    /// For each 32 values eight words. Their lowest bits are what a byte of scales is in `IQ4_KS`; the others are the
    /// codes, combined with what is one bit higher.
    qs: [[[u8; 2]; 8]; 8],
}

const _: () = assert!(size_of::<IQ4KSS>() == 128);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(146),
    name: "IQ4_KSS",
    geometry: Geometry::blocks(256, size_of::<IQ4KSS>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "16 uneven levels of two sets; 7-bit scales for 32 values each, hidden in the codes; one scale a row",
    ..Format::IK
};

impl IQ4KSS {
    /// The bytes of codes and that of the scale of sub-block `ib`.
    fn sub(&self, ib: usize) -> ([u8; 16], u8) {
        let words = self.qs[ib].map(u16::from_le_bytes);
        let scale = (0..8).fold(0, |scale, k| scale | (words[k] as u8 & 1) << k);
        let codes = words.map(|v| ((v & 0xfffe) ^ (v & 0xfffe) >> 1).to_le_bytes());
        (std::array::from_fn(|j| codes[j / 2][j % 2]), scale)
    }
}

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ4KSS, 4, 1, 256>(bytes, out, |d, b, _, out| {
        for (ib, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (codes, scale) = b.sub(ib);
            let (scale, up) = ik::odd_scale(single(*d), scale);
            ik::levels(ik::table(&LEVELS_4, up), scale, &from_nibbles(&codes), out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ4KSS, 4, 1>(bytes, groups::is_finite_single)
}
