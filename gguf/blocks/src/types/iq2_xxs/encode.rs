//! The encoder of `IQ2_XXS`.

use std::sync::LazyLock;

use zerocopy::FromZeros;

use super::IQ2_XXS;
use crate::Importance;
use crate::grids::points;
use crate::half_bulk::f32_to_f16;
use crate::rows;
use crate::search::lattice::Lattice;
use crate::search::magnitudes::{self, Again, PlainWeights, Rules, Super};
use crate::simd::{Encode, Simd};

static LATTICE: LazyLock<Lattice<8, 4>> = LazyLock::new(|| Lattice::new(&points::PAIRS_256, 2));

const RULES: Rules = Rules {
    mean: 1.0,
    plain: PlainWeights::Neutral,
    even_signs: true,
    tiny: 1e-15,
    fitted: true,
    side: 6,
    step: 0.1,
    again: Again::All,
};

impl Encode for IQ2_XXS {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let lattice = &*LATTICE;
        for (x, importance, block) in rows::weighted_pairs::<IQ2_XXS, 256>(src, importance, out) {
            let found = magnitudes::encode::<8, 32, 8, 4, 2>(simd, lattice, &RULES, x, importance);
            *block = pack(&found);
        }
    }
}

#[inline(always)]
fn pack(found: &Super<8>) -> IQ2_XXS {
    let mut block = IQ2_XXS::new_zeroed();
    if found.d == 0.0 {
        return block;
    }
    block.d = f32_to_f16(found.d).to_le_bytes();
    for ((qs, sub), scale) in block.qs.iter_mut().zip(&found.subs).zip(found.scales) {
        let signs = magnitudes::seven_signs(sub.signs) | u32::from(scale) << 28;
        let [a, b, c, d, ..] = sub.points.map(|p| p as u8);
        let [e, f, g, h] = signs.to_le_bytes();
        *qs = [a, b, c, d, e, f, g, h];
    }
    block
}
