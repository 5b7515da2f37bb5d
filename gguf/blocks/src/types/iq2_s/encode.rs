//! The encoder of `IQ2_S`.

use std::sync::LazyLock;

use zerocopy::FromZeros;

use super::IQ2_S;
use crate::Importance;
use crate::grids::points;
use crate::half_bulk::f32_to_f16;
use crate::packing::nibble_pairs;
use crate::rows;
use crate::search::lattice::Lattice;
use crate::search::magnitudes::{self, Again, PlainWeights, Rules, Super};
use crate::simd::{Encode, Simd};

static LATTICE: LazyLock<Lattice<8, 4>> = LazyLock::new(|| Lattice::new(&points::PAIRS_1024, 1));

const RULES: Rules = Rules {
    mean: 2.0,
    plain: PlainWeights::QuarterMean,
    even_signs: false,
    tiny: 1e-8,
    fitted: false,
    side: 9,
    step: 0.1,
    again: Again::OffPoints,
};

impl Encode for IQ2_S {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let lattice = &*LATTICE;
        for (x, importance, block) in rows::weighted_pairs::<IQ2_S, 256>(src, importance, out) {
            let found = magnitudes::encode::<16, 16, 8, 4, 3>(simd, lattice, &RULES, x, importance);
            *block = pack(&found);
        }
    }
}

#[inline(always)]
fn pack(found: &Super<16>) -> IQ2_S {
    let mut block = IQ2_S::new_zeroed();
    if found.d == 0.0 {
        return block;
    }
    // The factor makes up for what the rounding of scales loses.
    block.d = f32_to_f16(found.d * 0.9875).to_le_bytes();
    for (k, sub) in found.subs.iter().enumerate() {
        for i in 0..2 {
            let g = 2 * k + i;
            block.qs[g] = sub.points[i] as u8;
            block.signs[g] = sub.signs[i];
            block.qh[g / 4] |= ((sub.points[i] >> 8) as u8) << (2 * (g % 4));
        }
    }
    block.scales = nibble_pairs(&found.scales);
    block
}
