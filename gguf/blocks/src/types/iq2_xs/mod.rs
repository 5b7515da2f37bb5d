//! `IQ2_XS`: super-blocks of 256 values; each 8 of them are one of 512 points with signs, and each 16 have a 4-bit
//! scale.

mod encode;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids::{self, IQ2XS};
use crate::rows::{self, half};
use crate::simd::encoder;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2_XS {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// For each 8 values: the point in the low 9 bits, signs in the high 7.
    qs: [[u8; 2]; 32],
    /// Of each 32 values: the scale of the first 16 in the low four bits, of the others in the high four.
    scales: [u8; 8],
}

const _: () = assert!(size_of::<IQ2_XS>() == 74);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(17),
    name: "IQ2_XS",
    geometry: Geometry::blocks(256, size_of::<IQ2_XS>()),
    requires_importance: true,
    decode: Some(decode),
    encode: Some(encoder::<IQ2_XS>),
    encode_cost: 1180,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<IQ2_XS>(cpu)),
    doc: "Points of a lattice for 8 values, with signs; 4-bit scales for 16 values each",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ2_XS, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scale = b.scales[g / 4] >> (g % 4 / 2 * 4) & 15;
            let scale = d * (0.5 + f32::from(scale)) * 0.25;
            let q = u16::from_le_bytes(b.qs[g]);
            let signs = grids::even_signs(u32::from(q >> 9));
            grids::signed(&IQ2XS[usize::from(q & 511)], signs, scale, out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ2_XS>(bytes, |b| rows::is_finite(b.d))
}
