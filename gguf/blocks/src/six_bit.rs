//! Super-blocks of eight sub-blocks of 32 values with 6-bit scales and minima in 12 bytes: what `Q4_K` and `Q5_K`
//! have in common.

use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::rows::{self, Stored, half};
use crate::search::{
    Affine, Grid, LANES, affine_plain, affine_weighted, clamp, lane_sums, nint, positive, spread,
    sum_of_squares, transpose, weighted_grid,
};

/// Values of a sub-block.
const SUB: usize = 32;

/// The scales and minima.
#[inline]
pub(crate) fn unpack(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let mut scales = [0; 8];
    let mut mins = [0; 8];
    for k in 0..4 {
        let (low, mid, high) = (packed[k], packed[k + 4], packed[k + 8]);
        scales[k] = low & 63;
        mins[k] = mid & 63;
        scales[k + 4] = high & 15 | low >> 6 << 4;
        mins[k + 4] = high >> 4 | mid >> 6 << 4;
    }
    (scales, mins)
}

/// The opposite of [`unpack`]. Bits above the sixth spill as in the files of the reference.
pub(crate) fn pack(scales: [u8; 8], mins: [u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for k in 0..4 {
        packed[k] = scales[k] | scales[k + 4] >> 4 << 6;
        packed[k + 4] = mins[k] | mins[k + 4] >> 4 << 6;
        packed[k + 8] = scales[k + 4] & 15 | mins[k + 4] << 4;
    }
    packed
}

/// An encoded super-block whose codes are not packed yet.
pub(crate) struct SuperBlock {
    /// Unit of the scales, a half.
    pub(crate) d: [u8; 2],
    /// Unit of the minima, a half.
    pub(crate) dmin: [u8; 2],
    /// Packed scales and minima.
    pub(crate) scales: [u8; 12],
    /// The codes of each sub-block.
    pub(crate) codes: [[u8; SUB]; LANES],
}

/// Encodes one row; `pack` makes the type's block of each super-block.
pub(crate) fn encode_row<B: Stored>(
    src: &[f32],
    importance: Importance<'_>,
    grid: &Grid,
    out: &mut [u8],
    pack: impl Fn(&SuperBlock) -> B,
) {
    let (groups, blocks) = rows::pairs::<B, 256>(src, out);
    match importance {
        Importance::None => {
            for (x, block) in groups.iter().zip(blocks) {
                *block = pack(&plain(x, grid));
            }
        }
        Importance::Column(weights) => {
            let weights = rows::weights::<256>(src, weights);
            let grid = weighted_grid(grid.n_max);
            for ((x, w), block) in groups.iter().zip(weights).zip(blocks) {
                *block = pack(&weighted(x, w, &grid));
            }
        }
    }
}

/// Encodes without importance, by the error weighted with how far each value stands out.
fn plain(x: &[f32; 256], grid: &Grid) -> SuperBlock {
    let lanes = sub_lanes(x);
    let mut weights = [[0.0; LANES]; SUB];
    let mut square = [0.0; LANES];
    for x in &lanes {
        for j in 0..LANES {
            square[j] += x[j] * x[j];
        }
    }
    let average = square.map(|s| (s / 32.0).sqrt());
    for (w, x) in weights.iter_mut().zip(&lanes) {
        for j in 0..LANES {
            w[j] = average[j] + x[j].abs();
        }
    }
    let found = affine_plain::<SUB, false>(&lanes, &weights, grid);

    let (scale_unit, scales) = round_to_six_bits(&found.scale);
    let (min_unit, mins) = round_to_six_bits(&found.min);
    finish(x, grid.n_max, &found, (scale_unit, scales), (min_unit, mins))
}

/// Encodes with importance.
fn weighted(x: &[f32; 256], importance: &[f32; 256], grid: &Grid) -> SuperBlock {
    let sigma2 = 2.0 * sum_of_squares(x) / 256.0;
    let weights = sub_lanes(&spread(x, importance, sigma2));
    let found = affine_weighted(&sub_lanes(x), &weights, grid);
    let sub_weight = lane_sums(&weights);
    let (mut scales, mut mins) = ([0; LANES], [0; LANES]);
    let scale_unit = positive(63.0, &found.scale, &sub_weight, &mut scales);
    let min_unit = positive(63.0, &found.min, &sub_weight, &mut mins);
    finish(x, grid.n_max, &found, (scale_unit, scales), (min_unit, mins))
}

/// The sub-blocks side by side.
fn sub_lanes(x: &[f32; 256]) -> [[f32; LANES]; SUB] {
    let subs = x.as_chunks::<SUB>().0;
    transpose(std::array::from_fn(|j| &subs[j]))
}

/// Six-bit codes of numbers and their unit.
fn round_to_six_bits(values: &[f32; 8]) -> (f32, [u8; 8]) {
    let max = values.iter().fold(0.0, |m, &v| if v > m { v } else { m });
    let inverse = if max > 0.0 { 63.0 / max } else { 0.0 };
    // A negative number wraps round in 8 bits before it is limited.
    (
        max / 63.0,
        values.map(|v| (nint(inverse * v) as i32 as u8).min(63)),
    )
}

/// Chooses the codes again, for the scales and minima as they will be read.
fn finish(
    x: &[f32; 256],
    n_max: f32,
    found: &Affine<SUB>,
    (scale_unit, scales): (f32, [u8; 8]),
    (min_unit, mins): (f32, [u8; 8]),
) -> SuperBlock {
    let mut block = SuperBlock {
        d: f32_to_f16(scale_unit).to_le_bytes(),
        dmin: f32_to_f16(min_unit).to_le_bytes(),
        scales: pack(scales, mins),
        codes: found.codes,
    };
    let (scales, mins) = unpack(&block.scales);
    let (d, dmin) = (half(block.d), half(block.dmin));
    for (k, (x, codes)) in x.as_chunks::<SUB>().0.iter().zip(&mut block.codes).enumerate() {
        let scale = d * f32::from(scales[k]);
        if scale == 0.0 {
            continue;
        }
        let min = dmin * f32::from(mins[k]);
        for (code, x) in codes.iter_mut().zip(x) {
            *code = clamp(nint((x + min) / scale), 0.0, n_max) as i32 as u8;
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_bit_numbers_survive_packing() {
        let scales = [0, 63, 1, 62, 33, 31, 16, 47];
        let mins = [63, 0, 21, 42, 15, 48, 32, 5];
        assert_eq!(unpack(&pack(scales, mins)), (scales, mins));
    }
}
