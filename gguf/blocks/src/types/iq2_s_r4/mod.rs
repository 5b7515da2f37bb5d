//! `IQ2_S_R4`: 4 interleaved rows of what is `IQ2_S` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids::{self, IQ2S};
use crate::groups;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2_SR4 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 4],
    /// Of each 32 elements of four rows: the low 8 bits of the points of 8 values each.
    qs: [[[u8; 4]; 4]; 8],
    /// Of each 32 elements of four rows: the high bits of their points, two bits each.
    qh: [[u8; 4]; 8],
    /// The signs of each 8 values, as `qs`.
    signs: [[[u8; 4]; 4]; 8],
    /// Of each 32 elements of four rows: the scale of the first 16 in the low four bits, of the others in the high.
    scales: [[u8; 4]; 8],
}

const _: () = assert!(size_of::<IQ2_SR4>() == 328);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(222),
    name: "IQ2_S_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<IQ2_SR4>()),
    decode: Some(decode),
    check,
    doc: "IQ2_S, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ2_SR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let d = 0.125 * half(b.d[k]);
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let (ib, i) = (g / 4, g % 4);
            let scale = b.scales[ib][k] >> (i / 2 * 4) & 15;
            let point = usize::from(b.qs[ib][k][i]) | usize::from(b.qh[ib][k] >> (2 * i) & 3) << 8;
            let scale = d * f32::from(2 * scale + 1);
            grids::signed(&IQ2S[point], b.signs[ib][k][i], scale, out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<IQ2_SR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
