//! Matrix products and attention: loops per CPU level over the small pieces that tensor types supply.
//!
//! All functions run on the rayon pool that they are called in. Results do not depend on the number of
//! threads or on the CPU level.

pub mod elementwise;

use gguf_blocks::{Cpu, Format};

/// A stack of weight matrices of one tensor: `n_mats` matrices of `n_rows` rows of `n_cols` elements. A plain
/// weight is a stack of one.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// The tensor's type.
    pub format: &'static Format,
    /// The tensor's bytes as they are in the file.
    pub bytes: &'a [u8],
    /// Elements of a row.
    pub n_cols: usize,
    /// Rows of one matrix.
    pub n_rows: usize,
    /// Matrices (experts).
    pub n_mats: usize,
}

/// Activation rows in front of a product: f32, and quantized when a type with integer kernels needs it.
/// Reused from call to call without allocation.
#[derive(Debug, Default)]
pub struct Acts {}

impl Acts {
    /// Makes room for `n` rows of `n_cols` elements and drops what was there.
    pub fn reset(&mut self, _n: usize, _n_cols: usize) {
        todo!()
    }
    /// The f32 rows, row after row, to be filled after `reset`.
    pub fn rows_mut(&mut self) -> &mut [f32] {
        todo!()
    }
    /// The f32 rows.
    pub fn rows(&self) -> &[f32] {
        todo!()
    }
}

/// `y[t][r] = w.row(r) . x[t]` for every activation row. `y` has `n * n_rows` elements. Weights must be a
/// stack of one.
pub fn matmul(_cpu: Cpu, _w: Weights<'_>, _x: &mut Acts, _y: &mut [f32]) {
    todo!()
}

/// Products with one matrix of the stack per group: pairs `group_starts[m] .. group_starts[m + 1]` use
/// matrix `m`; pair `p` multiplies activation row `source[p]`; its result is `y[p * n_rows ..]`.
/// `group_starts` has `n_mats + 1` entries and ends with `source.len()`.
pub fn matmul_grouped(
    _cpu: Cpu,
    _w: Weights<'_>,
    _x: &mut Acts,
    _source: &[u32],
    _group_starts: &[usize],
    _y: &mut [f32],
) {
    todo!()
}

/// `e^x`, the same bits at every CPU level, relative error below 2e-7.
pub fn exp(_x: f32) -> f32 {
    todo!()
}
