//! The encoder of `Q2_K`.

use super::Q2K;
use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::packing::{flatten, two_bits};
use crate::rows::{self, half};
use crate::search::{
    Grid, LANES, affine_plain, affine_weighted, clamp, lane_sums, nint, positive, spread, sum_of_squares,
    transpose, weighted_grid,
};
use crate::simd::{Encode, Simd};

/// Values of a sub-block.
const SUB: usize = 16;
/// Sub-blocks of a super-block.
const SUBS: usize = 16;
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
    fn encode<S: Simd>(_: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<Q2K, 256>(src, out);
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

/// What the search found for each sub-block.
struct Found {
    scale: [f32; SUBS],
    min: [f32; SUBS],
    weight: [f32; SUBS],
    codes: [[u8; SUB]; SUBS],
}

/// Searches eight sub-blocks at a time with weights `w`.
fn search<const WEIGHTED: bool>(x: &[f32; 256], w: &[f32; 256]) -> Found {
    let (x, w) = (x.as_chunks::<SUB>().0, w.as_chunks::<SUB>().0);
    let mut out = Found {
        scale: [0.0; SUBS],
        min: [0.0; SUBS],
        weight: [0.0; SUBS],
        codes: [[0; SUB]; SUBS],
    };
    for at in (0..SUBS).step_by(LANES) {
        let lanes = transpose(std::array::from_fn(|j| &x[at + j]));
        let weights = transpose(std::array::from_fn(|j| &w[at + j]));
        let found = if WEIGHTED {
            affine_weighted(&lanes, &weights, &WEIGHTED_GRID)
        } else {
            affine_plain::<SUB, true>(&lanes, &weights, &GRID)
        };
        out.scale[at..at + LANES].copy_from_slice(&found.scale);
        out.min[at..at + LANES].copy_from_slice(&found.min);
        out.codes[at..at + LANES].copy_from_slice(&found.codes);
        out.weight[at..at + LANES].copy_from_slice(&lane_sums(&weights));
    }
    out
}

/// Encodes without importance: each value counts by its magnitude.
fn plain(x: &[f32; 256]) -> Q2K {
    let found = search::<false>(x, &x.map(f32::abs));
    let (d, scales) = round_to_four_bits(&found.scale);
    let (dmin, mins) = round_to_four_bits(&found.min);
    finish(x, found.codes, (d, scales), (dmin, mins))
}

/// Encodes with importance.
fn weighted(x: &[f32; 256], importance: &[f32; 256]) -> Q2K {
    let sigma2 = sum_of_squares(x) / 256.0;
    let found = search::<true>(x, &spread(x, importance, sigma2));
    let (mut scales, mut mins) = ([0; SUBS], [0; SUBS]);
    let d = positive(15.0, &found.scale, &found.weight, &mut scales);
    let dmin = positive(15.0, &found.min, &found.weight, &mut mins);
    finish(x, found.codes, (d, scales), (dmin, mins))
}

/// Four-bit codes of numbers and their unit.
fn round_to_four_bits(values: &[f32; SUBS]) -> (f32, [u8; SUBS]) {
    let max = values.iter().fold(0.0, |m, &v| if v > m { v } else { m });
    if max > 0.0 {
        let inverse = 15.0 / max;
        (max / 15.0, values.map(|v| nint(inverse * v) as i32 as u8))
    } else {
        (0.0, [0; SUBS])
    }
}

/// Chooses the codes again, for the scales and minima as they will be read.
fn finish(
    x: &[f32; 256],
    mut codes: [[u8; SUB]; SUBS],
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
    for ((x, codes), packed) in x.as_chunks::<SUB>().0.iter().zip(&mut codes).zip(block.scales) {
        let scale = d * f32::from(packed & 15);
        if scale == 0.0 {
            continue;
        }
        let min = dmin * f32::from(packed >> 4);
        for (code, x) in codes.iter_mut().zip(x) {
            *code = clamp(nint((x + min) / scale), 0.0, 3.0) as i32 as u8;
        }
    }
    block.qs = two_bits(&flatten(&codes));
    block
}
