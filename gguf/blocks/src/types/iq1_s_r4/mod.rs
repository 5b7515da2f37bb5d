//! `IQ1_S_R4`: 4 interleaved rows of 32 values to a block; much as `IQ1_S`, but with a scale for each row in front.
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
struct IQ1_SR4 {
    /// The low 8 bits of the points of 8 values each, of four rows.
    qs: [[u8; 4]; 4],
    /// Of each row: the high three bits of four points, the scale in bits 12 to 14, and in bit 15 whether the values
    /// move down.
    qh: [[u8; 2]; 4],
}

const _: () = assert!(size_of::<IQ1_SR4>() == 24);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(219),
    name: "IQ1_S_R4",
    geometry: Geometry::interleaved(4, 32, size_of::<IQ1_SR4>()).with_header(2),
    decode: Some(decode),
    check,
    doc: "Points of -1, 0 and 1 for 8 values, moved up or down; 3-bit scales for 32 values; one scale a row, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ1_SR4, 2, 4, 32>(bytes, out, |d, b, k, out| {
        let qh = u16::from_le_bytes(b.qh[k]);
        let scale = half(*d) * f32::from(2 * (qh >> 12 & 7) + 1);
        for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let point = u16::from(b.qs[i][k]) | (qh >> (3 * i) & 7) << 8;
            grids::shifted(point, qh >> 15 == 1, scale, out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ1_SR4, 2, 4>(bytes, rows::is_finite)
}
