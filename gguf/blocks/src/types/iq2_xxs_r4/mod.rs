//! `IQ2_XXS_R4`: 4 interleaved rows of what is `IQ2_XXS` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids::{self, IQ2XXS};
use crate::groups;
use crate::interleaved::signs_and_scale;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2_XXSR4 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 4],
    /// Of each 32 elements of four rows: signs, and in the lowest bits of four bytes the scale; see
    /// `interleaved::signs_and_scale`.
    sas: [[[u8; 4]; 4]; 8],
    /// Of each 32 elements of four rows: the points of 8 values each.
    qs: [[[u8; 4]; 4]; 8],
}

const _: () = assert!(size_of::<IQ2_XXSR4>() == 264);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(216),
    name: "IQ2_XXS_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<IQ2_XXSR4>()),
    decode: Some(decode),
    check,
    doc: "IQ2_XXS, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ2_XXSR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let d = 0.125 * half(b.d[k]);
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let (signs, scale) = signs_and_scale(b.sas[g / 4][k]);
            let point = &IQ2XXS[usize::from(b.qs[g / 4][k][g % 4])];
            grids::signed(point, signs[g % 4], d * f32::from(2 * scale + 1), out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<IQ2_XXSR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
