//! `IQ3_XXS`: super-blocks of 256 values; each 4 of them are one of 256 points, signs go by 8, and each 32 have a
//! 4-bit scale.

mod encode;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids::{self, IQ3XXS};
use crate::rows::{self, half};
use crate::simd::encoder;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ3_XXS {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// For each 32 values: the points of 4 values each.
    qs: [[u8; 8]; 8],
    /// For each 32 values: 4 times 7 bits of signs and in the top four bits the scale.
    rest: [[u8; 4]; 8],
}

const _: () = assert!(size_of::<IQ3_XXS>() == 98);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(18),
    name: "IQ3_XXS",
    geometry: Geometry::blocks(256, size_of::<IQ3_XXS>()),
    requires_importance: true,
    decode: Some(decode),
    encode: Some(encoder::<IQ3_XXS>),
    encode_cost: 980,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<IQ3_XXS>(cpu)),
    doc: "Points of a lattice for 4 values, with signs; 4-bit scales for 32 values each",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ3_XXS, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        for (ib, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let rest = u32::from_le_bytes(b.rest[ib]);
            let scale = d * (0.5 + (rest >> 28) as f32) * 0.5;
            let points = out.as_chunks_mut::<4>().0.iter_mut().zip(b.qs[ib]);
            for (i, (out, point)) in points.enumerate() {
                let signs = grids::even_signs(rest >> (7 * (i / 2))) >> (i % 2 * 4);
                grids::signed(&IQ3XXS[usize::from(point)], signs, scale, out);
            }
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ3_XXS>(bytes, |b| rows::is_finite(b.d))
}
