//! `IQ2_KT`: a row has a scale; super-blocks of 256 values, each 32 of them with a 4-bit scale; eight values are one of
//! 65536 pseudorandom sequences.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::ik::{self, LEVELS_4};
use crate::trellis::{OFFSET, sequence};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2KT {
    /// Scales, one of 16 uneven levels each: of sub-blocks 0 to 3 in the low halves, of 4 to 7 in the high.
    scales: [u8; 4],
    /// The numbers of the sequences.
    ql: [[u8; 2]; 32],
}

const _: () = assert!(size_of::<IQ2KT>() == 68);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(153),
    name: "IQ2_KT",
    geometry: Geometry::blocks(256, size_of::<IQ2KT>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "Pseudorandom sequences of 8 values; 4-bit scales for 32 values each; one scale a row",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ2KT, 4, 1, 256>(bytes, out, |d, b, _, out| {
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let stored = ik::nibble_of_halves(&b.scales, g / 4);
            let scale = single(*d) * f32::from(LEVELS_4[0][usize::from(stored)]);
            let number = u32::from(u16::from_le_bytes(b.ql[g]));
            *out = sequence(number + OFFSET).map(|v| scale * v);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ2KT, 4, 1>(bytes, groups::is_finite_single)
}
