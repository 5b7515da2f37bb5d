//! The encoder of `IQ2_XS`.

use std::sync::LazyLock;

use zerocopy::FromZeros;

use super::IQ2_XS;
use crate::Importance;
use crate::grids::points;
use crate::half_bulk::f32_to_f16;
use crate::packing::nibble_pairs;
use crate::rows;
use crate::search::lattice::Lattice;
use crate::search::magnitudes::{self, Again, PlainWeights, Rules, Super};
use crate::simd::{Encode, Simd};

static LATTICE: LazyLock<Lattice<8, 4>> = LazyLock::new(|| Lattice::new(&points::PAIRS_512, 2));

const RULES: Rules = Rules {
    mean: 1.0,
    plain: PlainWeights::Neutral,
    even_signs: true,
    tiny: 1e-15,
    fitted: false,
    side: 9,
    step: 0.1,
    again: Again::OffPoints,
};

impl Encode for IQ2_XS {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let lattice = &*LATTICE;
        for (x, importance, block) in rows::weighted_pairs::<IQ2_XS, 256>(src, importance, out) {
            let found = magnitudes::encode::<16, 16, 8, 4, 3>(simd, lattice, &RULES, x, importance);
            *block = pack(&found);
        }
    }
}

#[inline(always)]
fn pack(found: &Super<16>) -> IQ2_XS {
    let mut block = IQ2_XS::new_zeroed();
    if found.d == 0.0 {
        return block;
    }
    block.d = f32_to_f16(found.d).to_le_bytes();
    for (qs, sub) in block.qs.as_chunks_mut::<2>().0.iter_mut().zip(&found.subs) {
        for ((q, point), signs) in qs.iter_mut().zip(sub.points).zip(sub.signs) {
            *q = (point | u16::from(signs & 127) << 9).to_le_bytes();
        }
    }
    block.scales = nibble_pairs(&found.scales);
    block
}
