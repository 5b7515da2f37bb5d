//! The dense feed-forward network.

use rayon::prelude::*;

use crate::forward::{Env, MIN_ROWS, Scratch};
use crate::kernels::Acts;
use crate::kernels::elementwise::silu_mul;
use crate::model::FfnWeights;

/// From the normed rows in `s.x` to `down(silu(gate x) * up x)` in `s.y`.
pub(crate) fn run(w: &FfnWeights, env: &mut Env<'_>, s: &mut Scratch) {
    env.matmul(&w.gate, &mut s.x, &mut s.gate);
    env.matmul(&w.up, &mut s.x, &mut s.up);
    activate(&s.gate, &s.up, w.gate.n_rows(), &mut s.act);
    env.matmul(&w.down, &mut s.act, &mut s.y);
}

/// Rows of `silu(gate) * up`, `n_ff` elements each.
pub(crate) fn activate(gate: &[f32], up: &[f32], n_ff: usize, out: &mut Acts) {
    out.reset(gate.len() / n_ff, n_ff);
    let inputs = gate.par_chunks(n_ff).zip(up.par_chunks(n_ff));
    let rows = out
        .rows_mut()
        .par_chunks_mut(n_ff)
        .zip(inputs)
        .with_min_len(MIN_ROWS);
    rows.for_each(|(o, (g, u))| silu_mul(g, u, o));
}
