//! Unpacking of `IQ3_XXS` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use super::IQ3_XXS;
use crate::codebook::x86::{even, fours, set_top_scale, set_unit, sevens, signs};
use crate::grids::IQ3XXS;
use crate::kernel::each;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{columns, eight};

impl Unpack for IQ3_XXS {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        set_unit(out, rows);
        let rest = |half: usize| {
            columns(rows, |b| {
                let four = &b.rest.as_chunks::<4>().0[half];
                four.as_flattened().first_chunk().expect("16 bytes")
            })
        };
        let rest = eight(rest(0), rest(1));
        for (g, rest) in rest.iter().enumerate() {
            set_top_scale(out, first + g, *rest);
        }
        let negative = each(rest, |v| even(sevens(v)));
        for g in 0..8 {
            out.signed_group(first + g, |k| {
                let points = |i: usize| fours(each(rows, |b| &IQ3XXS[usize::from(b.qs[g][i])]));
                [[points(2 * k), points(2 * k + 1)], signs(negative[g], k)]
            });
        }
    }
}
