//! `IQ3_KT`: a row has a scale; super-blocks of 256 values, each 32 of them with a 4-bit scale; the magnitudes of eight
//! values are one of 65536 pseudorandom sequences, and signs are free.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::ik;
use crate::trellis::{OFFSET, sequence};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ3KT {
    /// Scales: of sub-blocks 0 to 3 in the low halves, of 4 to 7 in the high.
    scales: [u8; 4],
    /// The numbers of the sequences.
    ql: [[u8; 2]; 32],
    /// Element `i` is negative if bit `i / 32` of byte `i % 32` is set.
    qh: [u8; 32],
}

const _: () = assert!(size_of::<IQ3KT>() == 100);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(154),
    name: "IQ3_KT",
    geometry: Geometry::blocks(256, size_of::<IQ3KT>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "Pseudorandom sequences of 8 magnitudes, with signs; 4-bit scales for 32 values each; one scale a row",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ3KT, 4, 1, 256>(bytes, out, |d, b, _, out| {
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scale = single(*d) * f32::from(ik::nibble_of_halves(&b.scales, g / 4));
            let number = u32::from(u16::from_le_bytes(b.ql[g]));
            *out = sequence(number + OFFSET).map(|v| scale * v.abs());
            for (v, signs) in out.iter_mut().zip(&b.qh[g % 4 * 8..]) {
                *v *= if signs >> (g / 4) & 1 == 0 { 1.0 } else { -1.0 };
            }
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ3KT, 4, 1>(bytes, groups::is_finite_single)
}
