//! The AVX2 twin of the sums over rows.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use super::sums::add_group_with;

/// The twin of `sums::add_group_with`. Reached only for a [`gguf_blocks::Cpu`] of this level.
pub(super) fn add_group(rows: &[&[f32]], squares: &mut [f64], values: &mut [f64]) {
    #[target_feature(enable = "avx2")]
    fn with_avx2(rows: &[&[f32]], squares: &mut [f64], values: &mut [f64]) {
        add_group_with(rows, squares, values);
    }
    // SAFETY: `sums::add_group` calls this for a `Cpu` that has AVX2, nothing else does.
    unsafe { with_avx2(rows, squares, values) }
}
