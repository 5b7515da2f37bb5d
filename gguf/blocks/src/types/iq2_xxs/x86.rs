//! Unpacking of `IQ2_XXS` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use super::IQ2_XXS;
use crate::codebook::x86::{eights, even, set_top_scale, set_unit, sevens, signs};
use crate::grids::IQ2XXS;
use crate::kernel::each;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::dwords;

impl Unpack for IQ2_XXS {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        set_unit(out, rows);
        for g in 0..8 {
            // Not as part of larger loads, from which the compiler would take the points too, one by one.
            let rest = dwords(rows, |b| *b.qs[g].last_chunk().expect("8 bytes"));
            set_top_scale(out, first + g, rest);
            let negative = even(sevens(rest));
            out.signed_group(first + g, |k| {
                let points = each(rows, |b| &IQ2XXS[usize::from(b.qs[g][k])]);
                [eights(points), signs(negative, k)]
            });
        }
    }
}
