//! `IQ1_KT`: a row has a scale; super-blocks of 256 values, each 32 of them with a 4-bit scale; eight values are one of
//! 8192 pseudorandom sequences.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::ik::LEVELS_4;
use crate::trellis::{OFFSET, sequence};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ1KT {
    /// Of each 32 values: the scale, one of 16 uneven levels, in the low four bits; the top bit of the number of each
    /// 8 values in the high four.
    sh: [u8; 8],
    /// The low 8 bits of the numbers.
    ql: [u8; 32],
    /// Four more bits: of the first 128 values in the low halves, of the others in the high.
    qh: [u8; 16],
}

const _: () = assert!(size_of::<IQ1KT>() == 56);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(158),
    name: "IQ1_KT",
    geometry: Geometry::blocks(256, size_of::<IQ1KT>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "Pseudorandom sequences of 8 values; 4-bit scales for 32 values each; one scale a row",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ1KT, 4, 1, 256>(bytes, out, |d, b, _, out| {
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let (ib, sh) = (g / 4, u32::from(b.sh[g / 4]));
            let scale = single(*d) * f32::from(LEVELS_4[0][usize::from(b.sh[ib] & 15)]);
            let high = u32::from(b.qh[g % 16]) << (8 - 4 * (ib / 4)) & 0xf00;
            let number = u32::from(b.ql[g]) | high | sh << (8 - g % 4) & 0x1000;
            *out = sequence(number + OFFSET).map(|v| scale * v);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ1KT, 4, 1>(bytes, groups::is_finite_single)
}
