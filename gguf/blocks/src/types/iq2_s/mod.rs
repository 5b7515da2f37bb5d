//! `IQ2_S`: super-blocks of 256 values; each 8 of them are one of 1024 points with free signs, and each 16 have a
//! 4-bit scale.

mod encode;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids::{self, IQ2S};
use crate::rows::{self, half};
use crate::simd::encoder;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2_S {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// The low 8 bits of the point of each 8 values.
    qs: [u8; 32],
    /// The signs of each 8 values.
    signs: [u8; 32],
    /// The high bits of the points of each 32 values, two bits each.
    qh: [u8; 8],
    /// Of each 32 values: the scale of the first 16 in the low four bits, of the others in the high four.
    scales: [u8; 8],
}

const _: () = assert!(size_of::<IQ2_S>() == 82);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(22),
    name: "IQ2_S",
    geometry: Geometry::blocks(256, size_of::<IQ2_S>()),
    requires_importance: true,
    decode: Some(decode),
    encode: Some(encoder::<IQ2_S>),
    encode_cost: 485,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<IQ2_S>(cpu)),
    doc: "Points of a lattice for 8 values, with free signs; 4-bit scales for 16 values each",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ2_S, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scale = b.scales[g / 4] >> (g % 4 / 2 * 4) & 15;
            let scale = d * (0.5 + f32::from(scale)) * 0.25;
            let high = b.qh[g / 4] >> (2 * (g % 4)) & 3;
            let point = usize::from(b.qs[g]) | usize::from(high) << 8;
            grids::signed(&IQ2S[point], b.signs[g], scale, out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ2_S>(bytes, |b| rows::is_finite(b.d))
}
