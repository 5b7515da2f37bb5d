//! `IQ1_M_R4`: 4 interleaved rows of 32 values to a block; much as `IQ1_M`, but with 4-bit scales and with a scale for
//! each row in front.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids;
use crate::groups;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 32 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ1_MR4 {
    /// The low 8 bits of the points of 8 values each, of four rows.
    qs: [[u8; 4]; 4],
    /// Of each 16 elements of four rows, for 8 values each four bits: the high three of the point, and whether the
    /// values move down.
    qh: [[u8; 4]; 2],
    /// Of each row: the scale of the first 16 elements in the low four bits, of the others in the high.
    scales: [u8; 4],
}

const _: () = assert!(size_of::<IQ1_MR4>() == 28);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(229),
    name: "IQ1_M_R4",
    geometry: Geometry::interleaved(4, 32, size_of::<IQ1_MR4>()).with_header(2),
    decode: Some(decode),
    check,
    doc: "Points of -1, 0 and 1 for 8 values, each moved up or down; 4-bit scales for 16 values; one scale a row, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ1_MR4, 2, 4, 32>(bytes, out, |d, b, k, out| {
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scale = half(*d) * f32::from(b.scales[k] >> (g / 2 * 4) & 15);
            let high = b.qh[g / 2][k] >> (g % 2 * 4);
            let point = u16::from(b.qs[g][k]) | u16::from(high & 7) << 8;
            grids::shifted(point, high >> 3 & 1 == 1, scale, out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ1_MR4, 2, 4>(bytes, rows::is_finite)
}
