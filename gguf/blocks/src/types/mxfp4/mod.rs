//! `MXFP4`: 32 four-bit floats (1 sign, 2 exponent, 1 mantissa bit) with a power of two as their scale. Importance
//! changes nothing.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::packing::{DOUBLED_FP4, from_nibbles, nibbles};
use crate::rows;
use crate::search::{largest_magnitude, split};
use crate::simd::{Encode, Lanes, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MXFP4 {
    /// The scale's exponent, biased by 127; 255 stands for no number.
    e: u8,
    /// Element `j` in the low four bits of byte `j`, element `j + 16` in the high four.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<MXFP4>() == 17);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(39),
    name: "MXFP4",
    geometry: Geometry::blocks(32, size_of::<MXFP4>()),
    decode: Some(decode),
    encode: Some(encoder::<MXFP4>),
    encode_cost: 9,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<MXFP4>(cpu)),
    doc: "4-bit floats with a power of two for 32 values",
    ..Format::MAINLINE
};

/// The middles of neighbouring magnitudes of [`DOUBLED_FP4`].
const MIDPOINTS: [f32; 7] = [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0];

/// Half the scale of an exponent, for the doubled values: `2^(e - 128)`.
#[inline]
pub(super) fn half_scale(e: u8) -> f32 {
    f32::from_bits(match e {
        0 => 0x0020_0000,
        1 => 0x0040_0000,
        _ => u32::from(e - 1) << 23,
    })
}

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<MXFP4, 32>(bytes, out, |b, out| {
        let d = half_scale(b.e);
        for (v, q) in out.iter_mut().zip(from_nibbles(&b.qs)) {
            *v = f32::from(DOUBLED_FP4[usize::from(q)]) * d;
        }
    });
}

impl Encode for MXFP4 {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], _: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<MXFP4, 32>(src, out);
        for (x, block) in groups.iter().zip(blocks) {
            block.e = exponent(largest_magnitude(x));
            let scale = half_scale(block.e);
            let mut midpoints = [simd.splat(0.0); 7];
            for (m, of_one) in midpoints.iter_mut().zip(MIDPOINTS) {
                *m = simd.splat(of_one * scale);
            }
            let [a, b] = split(simd, x);
            block.qs = nibbles(&simd.low_bytes([nearest(simd, &midpoints, a), nearest(simd, &midpoints, b)]));
        }
    }
}

/// The exponent that puts the largest magnitude into the top octave of the values, 4 to 6.
fn exponent(largest: f32) -> u8 {
    if largest > 0.0 {
        (floor_log2(largest) + 125) as u8
    } else {
        0
    }
}

/// `floor(log2(v))` of a positive number, where the logarithm is rounded to f32 first: just below a power of two
/// it can round up to it.
fn floor_log2(v: f32) -> i32 {
    let bits = v.to_bits();
    if bits < 0x0080_0000 {
        return 31 - bits.leading_zeros() as i32 - 149;
    }
    let e = (bits >> 23) as i32 - 127;
    // How far the mantissa is below 2; the logarithm of that, to the second order.
    let below = 2.0 - f64::from(f32::from_bits(bits & 0x007f_ffff | 0x3f80_0000));
    if below > 1e-4 {
        return e;
    }
    let log = f64::from(e + 1) - below * (0.5 + below * 0.125) / std::f64::consts::LN_2;
    if (log as f32).floor() as i32 > e { e + 1 } else { e }
}

/// The codes of the values nearest to `x`, as whole numbers; the smaller value of two equally near ones, and code 0
/// for zeros of either sign. Differences of neighbours are exact, so comparisons with midpoints are those of
/// distances.
#[inline(always)]
fn nearest<S: Simd>(simd: S, midpoints: &[S::Lanes; 7], x: S::Lanes) -> S::Lanes {
    let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
    let mut code = zero;
    for mid in midpoints {
        code = code + S::Lanes::select(x.abs().gt(*mid), one, zero);
    }
    let negative = zero.gt(x) & code.gt(zero);
    S::Lanes::select(negative, code + simd.splat(8.0), code)
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<MXFP4>(bytes, |b| b.e != 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_rounds_like_single_precision() {
        for e in -125..128 {
            let power = 2.0f32.powi(e);
            assert_eq!(floor_log2(power), e);
            assert_eq!(floor_log2(power * 1.5), e);
            for ulps in 1..300 {
                let below = f32::from_bits(power.to_bits() - ulps);
                let rounded = f64::from(below).log2() as f32;
                assert_eq!(floor_log2(below), rounded.floor() as i32, "{below}");
            }
        }
        assert_eq!(floor_log2(f32::from_bits(1)), -149);
    }
}
