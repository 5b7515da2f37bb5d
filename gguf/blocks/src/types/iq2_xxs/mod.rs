//! `IQ2_XXS`: super-blocks of 256 values; each 8 of them are one of 256 points with signs, and each 32 have a
//! 4-bit scale.

mod encode;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids::{self, IQ2XXS};
use crate::rows::{self, half};
use crate::simd::encoder;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2_XXS {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// For each 32 values: the points of 8 values each in four bytes; then 4 times 7 bits of signs and in the top
    /// four bits the scale.
    qs: [[u8; 8]; 8],
}

const _: () = assert!(size_of::<IQ2_XXS>() == 66);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(16),
    name: "IQ2_XXS",
    geometry: Geometry::blocks(256, size_of::<IQ2_XXS>()),
    requires_importance: true,
    decode: Some(decode),
    encode: Some(encoder::<IQ2_XXS>),
    encode_cost: 960,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<IQ2_XXS>(cpu)),
    doc: "Points of a lattice for 8 values, with signs; 4-bit scales for 32 values each",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ2_XXS, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        for (out, &[i0, i1, i2, i3, rest @ ..]) in out.as_chunks_mut::<32>().0.iter_mut().zip(&b.qs) {
            let rest = u32::from_le_bytes(rest);
            let scale = d * (0.5 + (rest >> 28) as f32) * 0.25;
            let groups = out.as_chunks_mut::<8>().0.iter_mut();
            for (l, (out, point)) in groups.zip([i0, i1, i2, i3]).enumerate() {
                let signs = grids::even_signs(rest >> (7 * l));
                grids::signed(&IQ2XXS[usize::from(point)], signs, scale, out);
            }
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ2_XXS>(bytes, |b| rows::is_finite(b.d))
}
