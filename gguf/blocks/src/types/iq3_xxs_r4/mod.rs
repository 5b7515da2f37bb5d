//! `IQ3_XXS_R4`: 4 interleaved rows of what is `IQ3_XXS` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids::{self, IQ3XXS};
use crate::groups;
use crate::interleaved::signs_and_scale;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ3_XXSR4 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 4],
    /// Of each 32 elements of four rows: signs, and in the lowest bits of four bytes the scale; see
    /// `interleaved::signs_and_scale`.
    sas: [[[u8; 4]; 4]; 8],
    /// Of each 32 elements of four rows: the points of 4 values each.
    qs: [[[u8; 8]; 4]; 8],
}

const _: () = assert!(size_of::<IQ3_XXSR4>() == 392);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(218),
    name: "IQ3_XXS_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<IQ3_XXSR4>()),
    decode: Some(decode),
    check,
    doc: "IQ3_XXS, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ3_XXSR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let d = 0.25 * half(b.d[k]);
        for (g, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let (ib, i) = (g / 8, g % 8);
            let (signs, scale) = signs_and_scale(b.sas[ib][k]);
            let point = &IQ3XXS[usize::from(b.qs[ib][k][i])];
            let signs = signs[i / 2] >> (i % 2 * 4);
            grids::signed(point, signs, d * f32::from(2 * scale + 1), out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<IQ3_XXSR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
