//! `IQ3_S`: super-blocks of 256 values; each 4 of them are one of 512 points with free signs, and each 32 have a
//! 4-bit scale.

mod encode;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids::{self, IQ3S};
use crate::rows::{self, half};
use crate::simd::encoder;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ3_S {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// For each 32 values: the low 8 bits of the points of 4 values each.
    qs: [[u8; 8]; 8],
    /// For each 32 values: the ninth bits of their points.
    qh: [u8; 8],
    /// The signs of each 8 values.
    signs: [u8; 32],
    /// Of each 64 values: the scale of the first 32 in the low four bits, of the others in the high four.
    scales: [u8; 4],
}

const _: () = assert!(size_of::<IQ3_S>() == 110);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(21),
    name: "IQ3_S",
    geometry: Geometry::blocks(256, size_of::<IQ3_S>()),
    decode: Some(decode),
    encode: Some(encoder::<IQ3_S>),
    encode_cost: 750,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<IQ3_S>(cpu)),
    doc: "Points of a lattice for 4 values, with free signs; 4-bit scales for 32 values each",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ3_S, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        for (ib, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let scale = b.scales[ib / 2] >> (ib % 2 * 4) & 15;
            let scale = d * f32::from(1 + 2 * scale);
            let points = out.as_chunks_mut::<4>().0.iter_mut().zip(b.qs[ib]);
            for (i, (out, low)) in points.enumerate() {
                let point = usize::from(low) | usize::from(b.qh[ib] >> i & 1) << 8;
                let signs = b.signs[4 * ib + i / 2] >> (i % 2 * 4);
                grids::signed(&IQ3S[point], signs, scale, out);
            }
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ3_S>(bytes, |b| rows::is_finite(b.d))
}
