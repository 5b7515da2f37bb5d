//! `IQ1_S`: super-blocks of 256 values; each 8 of them are one of 2048 points of -1, 0 and 1, all moved by an eighth
//! up or down; each 32 have a 3-bit scale and the direction of the move.

mod encode;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids;
use crate::rows::{self, half};
use crate::simd::encoder;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ1_S {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// The low 8 bits of the point of each 8 values.
    qs: [u8; 32],
    /// For each 32 values: the high three bits of four points, the scale in bits 12 to 14, and in bit 15 whether
    /// the values move down.
    qh: [[u8; 2]; 8],
}

const _: () = assert!(size_of::<IQ1_S>() == 50);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(19),
    name: "IQ1_S",
    geometry: Geometry::blocks(256, size_of::<IQ1_S>()),
    requires_importance: true,
    decode: Some(decode),
    encode: Some(encoder::<IQ1_S>),
    encode_cost: 470,
    check,
    doc: "Points of -1, 0 and 1 for 8 values, moved up or down; 3-bit scales for 32 values each",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ1_S, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let qh = u16::from_le_bytes(b.qh[g / 4]);
            let scale = d * f32::from(2 * (qh >> 12 & 7) + 1);
            let point = u16::from(b.qs[g]) | (qh >> (3 * (g % 4)) & 7) << 8;
            grids::shifted(point, qh >> 15 == 1, scale, out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ1_S>(bytes, |b| rows::is_finite(b.d))
}
