//! Super-blocks of eight sub-blocks of 32 values with 6-bit scales and minima in 12 bytes: what `Q4_K` and `Q5_K`
//! have in common.

use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::rows::{self, Stored, half};
use crate::search::{
    Affine, Grid, affine_plain, affine_weighted, lane_sums, nint, positive, positive_max, split, spread,
    sums_of_squares, transpose, weighted_grid,
};
use crate::simd::{LANES, Lanes, Simd};

/// Sub-blocks of a super-block.
const SUBS: usize = 8;
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
    /// The codes in order.
    pub(crate) codes: [u8; 256],
}

/// A type of such super-blocks.
pub(crate) trait SixBit: Stored {
    /// Starting scales without importance, and the largest code.
    const GRID: Grid;

    /// The block. To be `#[inline(always)]`.
    fn pack(encoded: &SuperBlock) -> Self;
}

/// Encodes one row.
#[inline(always)]
pub(crate) fn encode_row<S: Simd, B: SixBit>(
    simd: S,
    src: &[f32],
    importance: Importance<'_>,
    out: &mut [u8],
) {
    let (groups, blocks) = rows::pairs::<B, 256>(src, out);
    let importance = match importance {
        Importance::None => None,
        Importance::Column(weights) => Some(rows::weights::<256>(src, weights)),
    };
    // Lanes are the sub-blocks of two super-blocks; the last of an odd number stands for both.
    for (i, blocks) in blocks.chunks_mut(2).enumerate() {
        let last = 2 * i + blocks.len() - 1;
        let x = [&groups[2 * i], &groups[last]];
        let found = match importance {
            None => plain(simd, x, &B::GRID),
            Some(w) => weighted(simd, x, [&w[2 * i], &w[last]], &weighted_grid(B::GRID.n_max)),
        };
        for (k, block) in blocks.iter_mut().enumerate() {
            *block = B::pack(&finish(simd, x[k], B::GRID.n_max, k, &found));
        }
    }
}

/// What was found for two super-blocks: the searches of their sub-blocks, the units of scales and minima, and both in
/// those units, in order of the sub-blocks.
struct Found {
    search: Affine,
    scale_unit: [f32; 2],
    min_unit: [f32; 2],
    scales: [u8; LANES],
    mins: [u8; LANES],
}

/// Searches without importance, by the error weighted with how far each value stands out.
#[inline(always)]
fn plain<S: Simd>(simd: S, x: [&[f32; 256]; 2], grid: &Grid) -> Found {
    let x = sub_lanes(simd, x);
    let mut square = simd.splat(0.0);
    for x in &x {
        square = square + *x * *x;
    }
    let average = (square / simd.splat(32.0)).sqrt();
    let mut w = x;
    for w in &mut w {
        *w = average + w.abs();
    }
    let search = affine_plain::<S, SUB, false>(simd, &x, &w, grid);

    let mut found = Found {
        search,
        scale_unit: [0.0; 2],
        min_unit: [0.0; 2],
        scales: [0; LANES],
        mins: [0; LANES],
    };
    for k in 0..2 {
        let subs = SUBS * k..SUBS * (k + 1);
        found.scale_unit[k] = round_to_six_bits(&search.scale[subs.clone()], &mut found.scales[subs.clone()]);
        found.min_unit[k] = round_to_six_bits(&search.min[subs.clone()], &mut found.mins[subs]);
    }
    found
}

/// Searches with importance.
#[inline(always)]
fn weighted<S: Simd>(simd: S, x: [&[f32; 256]; 2], importance: [&[f32; 256]; 2], grid: &Grid) -> Found {
    let sigma2 = sums_of_squares(x[0], x[1]).map(|sum| 2.0 * sum / 256.0);
    let sigma2 = std::array::from_fn(|j| sigma2[j / SUBS]);
    let x = sub_lanes(simd, x);
    let mut w = sub_lanes(simd, importance);
    spread::<S, SUB>(&x, &mut w, simd.load(&sigma2));
    let search = affine_weighted(simd, &x, &w, grid);

    // Four searches side by side: scales and minima of the first super-block, then of the second.
    let sub_weights = lane_sums(simd, &w).to_array();
    let (mut values, mut weights) = ([simd.splat(0.0); SUBS], [simd.splat(0.0); SUBS]);
    for e in 0..SUBS {
        let mut lanes = [0.0; LANES];
        (lanes[0], lanes[1]) = (search.scale[e], search.min[e]);
        (lanes[2], lanes[3]) = (search.scale[SUBS + e], search.min[SUBS + e]);
        values[e] = simd.load(&lanes);
        (lanes[0], lanes[1]) = (sub_weights[e], sub_weights[e]);
        (lanes[2], lanes[3]) = (sub_weights[SUBS + e], sub_weights[SUBS + e]);
        weights[e] = simd.load(&lanes);
    }
    let (units, codes) = positive(simd, 63.0, &values, &weights);
    let units = units.to_array();
    let mut found = Found {
        search,
        scale_unit: [units[0], units[2]],
        min_unit: [units[1], units[3]],
        scales: [0; LANES],
        mins: [0; LANES],
    };
    for (e, codes) in codes.into_iter().enumerate() {
        let codes = codes.to_array().map(|code| code as u8);
        (found.scales[e], found.mins[e]) = (codes[0], codes[1]);
        (found.scales[SUBS + e], found.mins[SUBS + e]) = (codes[2], codes[3]);
    }
    found
}

/// The sub-blocks side by side.
#[inline(always)]
fn sub_lanes<S: Simd>(simd: S, x: [&[f32; 256]; 2]) -> [S::Lanes; SUB] {
    let [a, b] = [x[0].as_chunks::<SUB>().0, x[1].as_chunks::<SUB>().0];
    transpose(
        simd,
        std::array::from_fn(|j| if j < SUBS { &a[j] } else { &b[j - SUBS] }),
    )
}

/// Six-bit codes of the numbers of a super-block; their unit.
#[inline(always)]
fn round_to_six_bits(values: &[f32], codes: &mut [u8]) -> f32 {
    let max = positive_max(values.iter().copied());
    let inverse = if max > 0.0 { 63.0 / max } else { 0.0 };
    for (code, v) in codes.iter_mut().zip(values) {
        // A negative number wraps round in 8 bits before it is limited.
        *code = (nint(inverse * v) as i32 as u8).min(63);
    }
    max / 63.0
}

/// Chooses the codes of super-block `k` again, for the scales and minima as they will be read.
#[inline(always)]
fn finish<S: Simd>(simd: S, x: &[f32; 256], n_max: f32, k: usize, found: &Found) -> SuperBlock {
    let subs = found.scales.as_chunks::<SUBS>().0[k];
    let mut block = SuperBlock {
        d: f32_to_f16(found.scale_unit[k]).to_le_bytes(),
        dmin: f32_to_f16(found.min_unit[k]).to_le_bytes(),
        scales: pack(subs, found.mins.as_chunks::<SUBS>().0[k]),
        codes: [0; 256],
    };
    let (scales, mins) = unpack(&block.scales);
    let (d, dmin) = (half(block.d), half(block.dmin));
    let (zero, n_max) = (simd.splat(0.0), simd.splat(n_max));
    let codes = block.codes.as_chunks_mut::<SUB>().0;
    for (e, (x, codes)) in x.as_chunks::<SUB>().0.iter().zip(codes).enumerate() {
        let scale = d * f32::from(scales[e]);
        if scale == 0.0 {
            *codes = found.search.codes32(simd, SUBS * k + e, x);
            continue;
        }
        let (scale, min) = (simd.splat(scale), simd.splat(dmin * f32::from(mins[e])));
        let [a, b] = split(simd, x);
        let a = ((a + min) / scale).nint().clamp(zero, n_max);
        let b = ((b + min) / scale).nint().clamp(zero, n_max);
        *codes = simd.low_bytes([a, b]);
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
