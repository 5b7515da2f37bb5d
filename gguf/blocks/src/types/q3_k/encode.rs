//! The encoder of `Q3_K`.

use super::{Q3K, pack_scales};
use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::packing::{striped_bits, two_bits};
use crate::rows::half;
use crate::search::{
    SuperBlock, clamp, lane_sums, nint, recode, signed_max, sixteenths, spread, super_blocks, symmetric,
    symmetric_descent, symmetric_one,
};
use crate::simd::{Encode, LANES, Lanes, Simd};

/// Sub-blocks of a super-block, and values of each.
const SUBS: usize = LANES;

impl Encode for Q3K {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        super_blocks::<S, Self>(simd, src, importance, out);
    }
}

impl SuperBlock for Q3K {
    #[inline(always)]
    fn search<S: Simd>(simd: S, x: &[f32; 256], importance: Option<(&[f32; 256], f32)>) -> Self {
        match importance {
            None => plain(simd, x),
            Some((w, sum)) => weighted(simd, x, w, 2.0 * sum / 256.0),
        }
    }
}

/// Encodes without importance.
#[inline(always)]
fn plain<S: Simd>(simd: S, x: &[f32; 256]) -> Q3K {
    let (scales, found) = symmetric_descent(simd, 4.0, &sixteenths(simd, x));
    let scales = scales.to_array();
    let max = signed_max(&scales);
    if max == 0.0 {
        return pack(simd, x, &found, 0.0, None);
    }
    let inverse = -32.0 / max;
    let mut rounded = [0; SUBS];
    for (code, s) in rounded.iter_mut().zip(scales) {
        *code = (clamp(nint(inverse * s), -32.0, 31.0) + 32.0) as i32 as u8;
    }
    pack(simd, x, &found, 1.0 / inverse, Some(rounded))
}

/// Encodes with importance.
#[inline(always)]
fn weighted<S: Simd>(simd: S, x: &[f32; 256], importance: &[f32; 256], sigma2: f32) -> Q3K {
    let lanes = sixteenths(simd, x);
    let mut w = sixteenths(simd, importance);
    spread::<S, SUBS>(&lanes, &mut w, simd.splat(sigma2));
    let (scales, found) = symmetric(simd, 4.0, &lanes, &w);
    let sub_weights = lane_sums(simd, &w).to_array();
    let mut rounded = [0; SUBS];
    let d = symmetric_one(simd, 32.0, &scales.to_array(), &sub_weights, &mut rounded);
    pack(simd, x, &found, d, Some(rounded))
}

/// Chooses the codes again, for the scales as they will be read. Without scales their bytes are zero and the codes
/// stay.
#[inline(always)]
fn pack<S: Simd>(
    simd: S,
    x: &[f32; 256],
    found: &[S::Lanes; SUBS],
    d: f32,
    scales: Option<[u8; SUBS]>,
) -> Q3K {
    let d = f32_to_f16(d).to_le_bytes();
    let mut unrounded = [0.0; SUBS];
    if let Some(scales) = scales {
        for (s, code) in unrounded.iter_mut().zip(scales) {
            *s = half(d) * f32::from(code as i8 - 32);
        }
    }
    let codes = recode(simd, 4.0, x, &unrounded, found);
    Q3K {
        hmask: striped_bits(&codes, 2),
        qs: two_bits(&codes),
        scales: scales.map_or([0; 12], |s| pack_scales(&s)),
        d,
    }
}
