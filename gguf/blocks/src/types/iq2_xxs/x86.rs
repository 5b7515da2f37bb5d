//! Unpacking of `IQ2_XXS` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use std::arch::x86_64::_mm256_setzero_si256;

use super::IQ2_XXS;
use crate::codebook::x86::{eights, even, set_top_scale, set_unit, sevens, signs};
use crate::grids::IQ2XXS;
use crate::kernel::each;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::columns;

impl Unpack for IQ2_XXS {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        set_unit(out, rows);
        let mut negative = [_mm256_setzero_si256(); 8];
        for two in 0..4 {
            let [_, a, _, b] = columns(rows, |b| {
                let two = &b.qs.as_chunks::<2>().0[two];
                two.as_flattened().first_chunk().expect("16 bytes")
            });
            set_top_scale(out, first + 2 * two, a);
            set_top_scale(out, first + 2 * two + 1, b);
            negative[2 * two] = even(sevens(a));
            negative[2 * two + 1] = even(sevens(b));
        }
        for g in 0..8 {
            out.signed_group(first + g, |k| {
                let points = each(rows, |b| &IQ2XXS[usize::from(b.qs[g][k])]);
                [eights(points), signs(negative[g], k)]
            });
        }
    }
}
