//! The encoder of `IQ3_XXS`.

use std::sync::LazyLock;

use zerocopy::FromZeros;

use super::IQ3_XXS;
use crate::Importance;
use crate::grids::points;
use crate::half_bulk::f32_to_f16;
use crate::rows;
use crate::search::lattice::Lattice;
use crate::search::magnitudes::{self, Again, PlainWeights, Rules, Super};
use crate::simd::{Encode, Simd};

static LATTICE: LazyLock<Lattice<4, 8>> = LazyLock::new(|| Lattice::new(&points::TRIPLES_256, 2));

const RULES: Rules = Rules {
    mean: 2.0,
    plain: PlainWeights::Squares,
    even_signs: true,
    tiny: 1e-8,
    fitted: false,
    side: 15,
    step: 0.2,
    again: Again::OffPoints,
};

impl Encode for IQ3_XXS {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let lattice = &*LATTICE;
        for (x, importance, block) in rows::weighted_pairs::<IQ3_XXS, 256>(src, importance, out) {
            let found = magnitudes::encode::<8, 32, 4, 8, 4>(simd, lattice, &RULES, x, importance);
            *block = pack(&found);
        }
    }
}

#[inline(always)]
fn pack(found: &Super<8>) -> IQ3_XXS {
    let mut block = IQ3_XXS::new_zeroed();
    if found.d == 0.0 {
        return block;
    }
    // The factor makes up for what the rounding of scales loses.
    block.d = f32_to_f16(found.d * 1.0125).to_le_bytes();
    for (k, sub) in found.subs.iter().enumerate() {
        block.qs[k] = sub.points.map(|p| p as u8);
        let rest = magnitudes::seven_signs(sub.signs) | u32::from(found.scales[k]) << 28;
        block.rest[k] = rest.to_le_bytes();
    }
    block
}
