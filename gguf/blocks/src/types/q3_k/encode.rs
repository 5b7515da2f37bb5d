//! The encoder of `Q3_K`.

use super::{Q3K, pack_scales};
use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::packing::{flatten, striped_bits, two_bits};
use crate::rows::{self, half};
use crate::search::{
    LANES, clamp, nint, signed_max, spread, sum_of_squares, symmetric, symmetric_descent, transpose,
};
use crate::simd::{Encode, Simd};

/// Values of a sub-block.
const SUB: usize = 16;
/// Sub-blocks of a super-block.
const SUBS: usize = 16;

impl Encode for Q3K {
    #[inline(always)]
    fn encode<S: Simd>(_: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<Q3K, 256>(src, out);
        match importance {
            Importance::None => {
                for (x, block) in groups.iter().zip(blocks) {
                    *block = plain(x);
                }
            }
            Importance::Column(weights) => {
                let weights = rows::weights::<256>(src, weights);
                for ((x, w), block) in groups.iter().zip(weights).zip(blocks) {
                    *block = weighted(x, w);
                }
            }
        }
    }
}

/// Encodes without importance.
fn plain(x: &[f32; 256]) -> Q3K {
    let subs = x.as_chunks::<SUB>().0;
    let mut scales = [0.0; SUBS];
    let mut codes = [[0; SUB]; SUBS];
    for at in (0..SUBS).step_by(LANES) {
        let lanes = transpose(std::array::from_fn(|j| &subs[at + j]));
        let (s, c) = symmetric_descent(4.0, &lanes);
        scales[at..at + LANES].copy_from_slice(&s);
        codes[at..at + LANES].copy_from_slice(&c);
    }
    let max = signed_max(&scales);
    if max == 0.0 {
        return pack(x, codes, 0.0, None);
    }
    let inverse = -32.0 / max;
    let rounded = scales.map(|s| (clamp(nint(inverse * s), -32.0, 31.0) + 32.0) as i32 as u8);
    pack(x, codes, 1.0 / inverse, Some(rounded))
}

/// Encodes with importance.
fn weighted(x: &[f32; 256], importance: &[f32; 256]) -> Q3K {
    let sigma2 = 2.0 * sum_of_squares(x) / 256.0;
    let weights = spread(x, importance, sigma2);
    let mut scales = [0.0; SUBS];
    let mut sub_weights = [0.0; SUBS];
    let mut codes = [[0; SUB]; SUBS];
    for (k, (x, w)) in x
        .as_chunks::<SUB>()
        .0
        .iter()
        .zip(weights.as_chunks::<SUB>().0)
        .enumerate()
    {
        scales[k] = symmetric(4.0, x, w, &mut codes[k]);
        sub_weights[k] = w.iter().fold(0.0, |s, w| s + w);
    }
    let mut rounded = [0; SUBS];
    let d = symmetric(32.0, &scales, &sub_weights, &mut rounded);
    pack(x, codes, d, Some(rounded))
}

/// Chooses the codes again, for the scales as they will be read. Without scales their bytes are zero and the codes
/// stay.
fn pack(x: &[f32; 256], mut codes: [[u8; SUB]; SUBS], d: f32, scales: Option<[u8; SUBS]>) -> Q3K {
    let mut block = Q3K {
        hmask: [0; 32],
        qs: [0; 64],
        scales: scales.map_or([0; 12], |s| pack_scales(&s)),
        d: f32_to_f16(d).to_le_bytes(),
    };
    let d = half(block.d);
    if let Some(scales) = scales {
        for ((x, codes), scale) in x.as_chunks::<SUB>().0.iter().zip(&mut codes).zip(scales) {
            let scale = d * f32::from(scale as i8 - 32);
            if scale == 0.0 {
                continue;
            }
            for (code, x) in codes.iter_mut().zip(x) {
                *code = (clamp(nint(x / scale), -4.0, 3.0) + 4.0) as i32 as u8;
            }
        }
    }
    let codes = flatten(&codes);
    block.hmask = striped_bits(|i| codes[i] > 3);
    block.qs = two_bits(&codes);
    block
}
