//! `IQ4_KT`: a row has a scale; super-blocks of 256 values, each 32 of them with a scale of seven bits and one of two
//! sets of sequences; four values are one of 32768 pseudorandom sequences.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::trellis::{OFFSET, sequence};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ4KT {
    /// Of each 32 values: which set of sequences in the lowest bit; the scale, plus 64, in seven bits; the top three bits
    /// of the number of each 4 values.
    shb: [[u8; 4]; 8],
    /// The low 8 bits of the numbers.
    ql: [u8; 64],
    /// Four more bits: of the first 128 values in the low halves, of the others in the high.
    qh: [u8; 32],
}

const _: () = assert!(size_of::<IQ4KT>() == 128);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(155),
    name: "IQ4_KT",
    geometry: Geometry::blocks(256, size_of::<IQ4KT>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "Pseudorandom sequences of 4 values; 7-bit scales for 32 values each; one scale a row",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ4KT, 4, 1, 256>(bytes, out, |d, b, _, out| {
        for (g, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let shb = u32::from_le_bytes(b.shb[g / 8]);
            let scale = single(*d) * f32::from((shb >> 1 & 0x7f) as i8 - 64);
            let high = u32::from(b.qh[g % 32]) << (8 - 4 * (g / 32)) & 0xf00;
            let number = u32::from(b.ql[g]) | high | (shb >> (8 + 3 * (g % 8)) & 7) << 12;
            let set = if shb & 1 == 1 { 1 << 15 } else { 0 };
            *out = sequence(number + set + OFFSET).map(|v| scale * v);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ4KT, 4, 1>(bytes, groups::is_finite_single)
}
