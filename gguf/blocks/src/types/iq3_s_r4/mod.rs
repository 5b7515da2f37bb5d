//! `IQ3_S_R4`: 4 interleaved rows of what is `IQ3_S` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids::{self, IQ3S};
use crate::groups;
use crate::ik;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ3_SR4 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 4],
    /// Of each 32 elements: the low 8 bits of points 0, 4, 1, 5, 2, 6, 3, 7 of 4 values each, of four rows.
    qs: [[[u8; 4]; 8]; 8],
    /// Of each 32 elements of four rows: the ninth bits of their points.
    qh: [[u8; 4]; 8],
    /// Of each 32 elements of four rows: bit `i` of byte `j` is the sign of element `j` of point `i`.
    signs: [[[u8; 4]; 4]; 8],
    /// The scales of 32 elements each, in the order of `ik::nibble_of_halves`.
    scales: [u8; 16],
}

const _: () = assert!(size_of::<IQ3_SR4>() == 440);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(221),
    name: "IQ3_S_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<IQ3_SR4>()),
    decode: Some(decode),
    check,
    doc: "IQ3_S, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ3_SR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let d = half(b.d[k]);
        for (g, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let (ib, i) = (g / 8, g % 8);
            let scale = ik::nibble_of_halves(&b.scales, 4 * ib + k);
            let low = b.qs[ib][2 * (i % 4) + i / 4][k];
            let point = usize::from(low) | usize::from(b.qh[ib][k] >> i & 1) << 8;
            let bytes = b.signs[ib][k];
            let signs = (0..4).fold(0, |signs, j| signs | (bytes[j] >> i & 1) << j);
            grids::signed(&IQ3S[point], signs, d * f32::from(1 + 2 * scale), out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<IQ3_SR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
