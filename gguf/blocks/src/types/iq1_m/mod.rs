//! `IQ1_M`: super-blocks of 256 values; each 8 of them are one of 2048 points of -1, 0 and 1, moved by an eighth up or
//! down; each 16 have a 3-bit scale.

mod encode;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids;
use crate::rows::{self, half};
use crate::simd::encoder;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ1_M {
    /// The low 8 bits of the point of each 8 values.
    qs: [u8; 32],
    /// Of each 8 values four bits: the high three of the point, and whether the values move down.
    qh: [u8; 16],
    /// Of each 64 values: four scales of three bits, and four bits of the unit of all scales, a half.
    scales: [[u8; 2]; 4],
}

const _: () = assert!(size_of::<IQ1_M>() == 56);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(29),
    name: "IQ1_M",
    geometry: Geometry::blocks(256, size_of::<IQ1_M>()),
    requires_importance: true,
    decode: Some(decode),
    encode: Some(encoder::<IQ1_M>),
    encode_cost: 750,
    check,
    doc: "Points of -1, 0 and 1 for 8 values, each moved up or down; 3-bit scales for 16 values each",
    ..Format::MAINLINE
};

impl IQ1_M {
    /// The unit of the scales, a half: the top four bits of each word of `scales`.
    fn d(&self) -> [u8; 2] {
        let [a, b, c, d] = self.scales.map(|s| s[1] >> 4);
        [a | b << 4, c | d << 4]
    }
}

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ1_M, 256>(bytes, out, |b, out| {
        let d = half(b.d());
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let k = g / 2;
            let scale = u16::from_le_bytes(b.scales[k / 4]) >> (3 * (k % 4)) & 7;
            let scale = d * f32::from(2 * scale + 1);
            let high = b.qh[k] >> (g % 2 * 4);
            let point = u16::from(b.qs[g]) | u16::from(high & 7) << 8;
            grids::shifted(point, high >> 3 & 1 == 1, scale, out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ1_M>(bytes, |b| rows::is_finite(b.d()))
}
