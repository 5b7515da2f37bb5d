//! The encoder of `Q2_K`.

use super::Q2K;
use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::packing::two_bits;
use crate::rows::half;
use crate::search::{
    Affine, Grid, SuperBlock, affine_plain, affine_weighted, lane_sums, nint, positive, positive_max,
    sixteenths, spread, super_blocks, weighted_grid,
};
use crate::simd::{Encode, LANES, Lanes, Simd};

/// Values of a sub-block.
const SUB: usize = 16;
/// Sub-blocks of a super-block.
const SUBS: usize = LANES;
/// Starting scales without importance.
const GRID: Grid = Grid {
    n_max: 3.0,
    first: -0.5,
    step: 0.1,
    steps: 15,
};
/// Starting scales with importance.
const WEIGHTED_GRID: Grid = weighted_grid(3.0);

impl Encode for Q2K {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        super_blocks::<S, Self>(simd, src, importance, out);
    }
}

impl SuperBlock for Q2K {
    #[inline(always)]
    fn search<S: Simd>(simd: S, x: &[f32; 256], importance: Option<(&[f32; 256], f32)>) -> Self {
        match importance {
            None => plain(simd, x),
            Some((w, sum)) => weighted(simd, x, w, sum / 256.0),
        }
    }
}

/// Encodes without importance: each value counts by its magnitude.
#[inline(always)]
fn plain<S: Simd>(simd: S, x: &[f32; 256]) -> Q2K {
    let lanes = sixteenths(simd, x);
    let mut w = lanes;
    for w in &mut w {
        *w = w.abs();
    }
    let found = affine_plain::<S, SUB, true>(simd, &lanes, &w, &GRID);
    let scales = round_to_four_bits(&found.scale);
    let mins = round_to_four_bits(&found.min);
    finish(simd, x, &found, scales, mins)
}

/// Encodes with importance.
#[inline(always)]
fn weighted<S: Simd>(simd: S, x: &[f32; 256], importance: &[f32; 256], sigma2: f32) -> Q2K {
    let lanes = sixteenths(simd, x);
    let mut w = sixteenths(simd, importance);
    spread::<S, SUB>(&lanes, &mut w, simd.splat(sigma2));
    let found = affine_weighted(simd, &lanes, &w, &WEIGHTED_GRID);

    // The searches for both units side by side.
    let sub_weights = lane_sums(simd, &w).to_array();
    let (mut values, mut weights) = (lanes, lanes);
    for k in 0..SUBS {
        let mut pair = [0.0; LANES];
        (pair[0], pair[1]) = (found.scale[k], found.min[k]);
        values[k] = simd.load(&pair);
        weights[k] = simd.splat(sub_weights[k]);
    }
    let (units, codes) = positive(simd, 15.0, &values, &weights);
    let (mut scales, mut mins) = ([0; SUBS], [0; SUBS]);
    for (k, codes) in codes.into_iter().enumerate() {
        let codes = codes.to_array();
        (scales[k], mins[k]) = (codes[0] as u8, codes[1] as u8);
    }
    let units = units.to_array();
    finish(simd, x, &found, (units[0], scales), (units[1], mins))
}

/// Four-bit codes of numbers and their unit.
#[inline(always)]
fn round_to_four_bits(values: &[f32; SUBS]) -> (f32, [u8; SUBS]) {
    let max = positive_max(values.iter().copied());
    let mut codes = [0; SUBS];
    if max > 0.0 {
        let inverse = 15.0 / max;
        for (code, v) in codes.iter_mut().zip(values) {
            *code = nint(inverse * v) as i32 as u8;
        }
        (max / 15.0, codes)
    } else {
        (0.0, codes)
    }
}

/// Chooses the codes again, for the scales and minima as they will be read.
#[inline(always)]
fn finish<S: Simd>(
    simd: S,
    x: &[f32; 256],
    found: &Affine,
    (d, scales): (f32, [u8; SUBS]),
    (dmin, mins): (f32, [u8; SUBS]),
) -> Q2K {
    let mut block = Q2K {
        // A negative scale wrapped round and spills into the minimum, as in the files of the reference.
        scales: std::array::from_fn(|k| scales[k] | mins[k] << 4),
        qs: [0; 64],
        d: f32_to_f16(d).to_le_bytes(),
        dmin: f32_to_f16(dmin).to_le_bytes(),
    };
    let (d, dmin) = (half(block.d), half(block.dmin));
    let (zero, top) = (simd.splat(0.0), simd.splat(3.0));
    let mut codes = [0; 256];
    let subs = x.as_chunks::<SUB>().0.iter().zip(codes.as_chunks_mut::<SUB>().0);
    for (k, (x, codes)) in subs.enumerate() {
        let packed = block.scales[k];
        let scale = d * f32::from(packed & 15);
        if scale == 0.0 {
            *codes = found.codes16(simd, k, x);
            continue;
        }
        let min = simd.splat(dmin * f32::from(packed >> 4));
        let l = ((simd.load(x) + min) / simd.splat(scale)).nint().clamp(zero, top);
        codes.copy_from_slice(&simd.low_bytes([l, l])[..SUB]);
    }
    block.qs = two_bits(&codes);
    block
}
