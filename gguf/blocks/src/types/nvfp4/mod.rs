//! `NVFP4`: 64 four-bit floats (1 sign, 2 exponent, 1 mantissa bit) with an 8-bit float as scale for 16 each. The
//! scale of the whole tensor is another tensor, which the model multiplies with.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::packing::DOUBLED_FP4;
use crate::rows;
use crate::{Format, Geometry, TypeId};

/// One block of 64 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct NVFP4 {
    /// The scale of each 16 values: a float of 4 exponent and 3 mantissa bits; the top bit is not used.
    d: [u8; 4],
    /// For each 16 values: element `j` in the low four bits of byte `j`, element `j + 8` in the high four.
    qs: [[u8; 8]; 4],
}

const _: () = assert!(size_of::<NVFP4>() == 36);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(40),
    name: "NVFP4",
    geometry: Geometry::blocks(64, size_of::<NVFP4>()),
    decode: Some(decode),
    check,
    doc: "4-bit floats; 8-bit float scales for 16 values each",
    ..Format::MAINLINE
};

/// Half a scale, for the doubled values of four-bit floats.
fn half_scale(stored: u8) -> f32 {
    let (exponent, mantissa) = (stored >> 3 & 15, f32::from(stored & 7));
    match stored & 0x7f {
        // The pattern of NaN stands for zero.
        0x7f => 0.0,
        // Half of `mantissa · 2^-9`.
        0..8 => mantissa * 2.0f32.powi(-10),
        // Half of `(1 + mantissa / 8) · 2^(exponent - 7)`.
        _ => (1.0 + mantissa / 8.0) * 2.0f32.powi(i32::from(exponent) - 8),
    }
}

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<NVFP4, 64>(bytes, out, |b, out| {
        let subs = out.as_chunks_mut::<16>().0.iter_mut().zip(&b.qs);
        for ((out, qs), d) in subs.zip(b.d) {
            let d = half_scale(d);
            for (j, v) in out.iter_mut().enumerate() {
                let q = qs[j % 8] >> (j / 8 * 4) & 15;
                *v = f32::from(DOUBLED_FP4[usize::from(q)]) * d;
            }
        }
    });
}

/// Every scale has a finite value.
fn check(_bytes: &[u8]) -> Option<usize> {
    None
}
