//! `IQ2_XS_R4`: 4 interleaved rows of what is `IQ2_XS` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::grids::{self, IQ2XS};
use crate::groups;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 256 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2_XSR4 {
    /// Unit of the scales of each row, a half.
    d: [[u8; 2]; 4],
    /// Of each 32 elements of four rows, for 8 values each: the point in the low 9 bits, signs in the high 7.
    qs: [[[[u8; 2]; 4]; 4]; 8],
    /// Of each 32 elements of four rows: the scale of the first 16 in the low four bits, of the others in the high.
    scales: [[u8; 4]; 8],
}

const _: () = assert!(size_of::<IQ2_XSR4>() == 296);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(217),
    name: "IQ2_XS_R4",
    geometry: Geometry::interleaved(4, 256, size_of::<IQ2_XSR4>()),
    decode: Some(decode),
    check,
    doc: "IQ2_XS, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ2_XSR4, 0, 4, 256>(bytes, out, |_, b, k, out| {
        let d = 0.125 * half(b.d[k]);
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let q = u16::from_le_bytes(b.qs[g / 4][k][g % 4]);
            let scale = b.scales[g / 4][k] >> (g % 4 / 2 * 4) & 15;
            let signs = (q >> 9) as u8;
            let signs = signs ^ signs << 1;
            let point = &IQ2XS[usize::from(q & 511)];
            grids::signed(point, signs, d * f32::from(2 * scale + 1), out);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<IQ2_XSR4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}
