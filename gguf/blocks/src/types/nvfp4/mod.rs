//! `NVFP4`: 64 four-bit floats (1 sign, 2 exponent, 1 mantissa bit) with an 8-bit float as scale for 16 each. The
//! scale of the whole tensor is another tensor, which the model multiplies with. Importance changes nothing.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::packing::{DOUBLED_FP4, nearest_fp4};
use crate::rows;
use crate::search::signed_max;
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

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
    encode: Some(encoder::<NVFP4>),
    encode_cost: 133,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<NVFP4>(cpu)),
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

impl Encode for NVFP4 {
    #[inline(always)]
    fn encode<S: Simd>(_: S, src: &[f32], _: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<NVFP4, 64>(src, out);
        for (x, block) in groups.iter().zip(blocks) {
            let subs = x.as_chunks::<16>().0.iter().zip(&mut block.qs);
            for ((x, qs), d) in subs.zip(&mut block.d) {
                *d = stored_scale(signed_max(x).abs() / 6.0);
                let values = DOUBLED_FP4.map(|v| f32::from(v) * half_scale(*d));
                let codes = x.map(|x| nearest_fp4(&values, x));
                *qs = std::array::from_fn(|j| codes[j] | codes[j + 8] << 4);
            }
        }
    }
}

/// The stored scale nearest to `v`, halves up; the largest for what is larger, 0 for what is not positive.
fn stored_scale(v: f32) -> u8 {
    /// 448.
    const LARGEST: u8 = 0x7e;
    if v.is_nan() || v <= 0.0 {
        return 0;
    }
    if v > 448.0 {
        return LARGEST;
    }
    let bits = v.to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 7;
    if exponent <= 0 {
        return (v * 512.0 + 0.5).min(7.0) as u8;
    }
    // Three bits of mantissa under the exponent; the highest bit that is dropped rounds, into the exponent if need be.
    let rounded = ((exponent as u32) << 3) + (((bits >> 19 & 15) + 1) >> 1);
    (rounded as u8).min(LARGEST)
}

/// Every scale has a finite value.
fn check(_bytes: &[u8]) -> Option<usize> {
    None
}
