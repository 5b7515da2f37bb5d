//! The encoder of `IQ3_S`.

use std::sync::LazyLock;

use zerocopy::FromZeros;

use super::IQ3_S;
use crate::Importance;
use crate::grids::points;
use crate::half_bulk::f32_to_f16;
use crate::packing::nibble_pairs;
use crate::rows;
use crate::search::lattice::Lattice;
use crate::search::magnitudes::{self, Again, PlainWeights, Rules, Super};
use crate::simd::{Encode, Simd};

static LATTICE: LazyLock<Lattice<4, 8>> = LazyLock::new(|| Lattice::new(&points::TRIPLES_512, 3));

const RULES: Rules = Rules {
    mean: 2.0,
    plain: PlainWeights::Squares,
    even_signs: false,
    tiny: 0.0,
    fitted: false,
    side: 9,
    step: 0.2,
    again: Again::AllIfAnyOff,
};

impl Encode for IQ3_S {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let lattice = &*LATTICE;
        for (x, importance, block) in rows::weighted_pairs::<IQ3_S, 256>(src, importance, out) {
            let found = magnitudes::encode::<8, 32, 4, 8, 3>(simd, lattice, &RULES, x, importance);
            *block = pack(&found);
        }
    }
}

#[inline(always)]
fn pack(found: &Super<8>) -> IQ3_S {
    let mut block = IQ3_S::new_zeroed();
    // The factor makes up for what the rounding of scales loses.
    block.d = f32_to_f16(found.d * 1.033).to_le_bytes();
    // The files of the reference have the points and signs of sub-blocks behind an empty one in its place.
    let kept = found.subs.iter().enumerate().filter(|(_, sub)| !sub.empty);
    for (at, (k, sub)) in kept.enumerate() {
        block.qs[at] = sub.points.map(|p| p as u8);
        block.signs[4 * at..][..4].copy_from_slice(&sub.signs);
        for (i, point) in sub.points.into_iter().enumerate() {
            block.qh[k] |= ((point >> 8) as u8) << i;
        }
    }
    block.scales = nibble_pairs(&found.scales);
    block
}
