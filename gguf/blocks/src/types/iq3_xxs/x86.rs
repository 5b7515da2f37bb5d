//! Unpacking of `IQ3_XXS` at level AVX2.

#![expect(unsafe_code, reason = "a trait of code compiled for AVX2")]

use super::IQ3_XXS;
use crate::kernel::x86::{Target, Unpack};
use crate::tile::ROWS;
use crate::x86::{halves, set_codebook};

impl Unpack for IQ3_XXS {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn unpack<const DOT: bool>(rows: [&Self; ROWS], first: usize, out: &mut Target<'_, Self, DOT>) {
        set_codebook(out, first, rows, halves(rows, |b| b.d), 0.25);
    }
}
