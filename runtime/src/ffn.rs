//! The dense feed-forward network.

use gguf_models::spec::Activation;

use crate::forward::{Env, Scratch};
use crate::kernels::Acts;
use crate::kernels::elementwise;
use crate::model::DenseWeights;
use crate::pool;

/// From the normed rows in `s.x` to `down(gate(x) * up(x))` in `s.y`.
pub(crate) fn run(w: &DenseWeights, env: &mut Env<'_>, s: &mut Scratch) {
    let mut y = std::mem::take(&mut s.y);
    run_into(w, env, s, &mut y);
    s.y = y;
}

/// The same, but into `y`.
pub(crate) fn run_into(w: &DenseWeights, env: &mut Env<'_>, s: &mut Scratch, y: &mut Vec<f32>) {
    if let Some(gate) = &w.gate {
        env.matmul_each([(gate, &mut s.gate), (&w.up, &mut s.up)], &mut s.x);
        activate(w.activation, &s.gate, &s.up, w.n_ff, &mut s.act);
    } else {
        env.matmul(&w.up, &mut s.x, &mut s.up);
        activate_fused(w.activation, &s.up, w.n_ff, &mut s.act);
    }
    env.matmul(&w.down, &mut s.act, y);
}

/// Rows of gated activations, `n_ff` elements each.
pub(crate) fn activate(activation: Activation, gate: &[f32], up: &[f32], n_ff: usize, out: &mut Acts) {
    out.reset(gate.len() / n_ff, n_ff);
    let inputs = gate.chunks(n_ff).zip(up.chunks(n_ff));
    let rows = out.rows_mut().chunks_mut(n_ff).zip(inputs);
    pool::rows(rows, |(o, (g, u))| elementwise::gate(activation, g, u, o));
}

/// The same for rows that have first the gates, then the ups.
fn activate_fused(activation: Activation, gate_up: &[f32], n_ff: usize, out: &mut Acts) {
    out.reset(gate_up.len() / (2 * n_ff), n_ff);
    let rows = out.rows_mut().chunks_mut(n_ff).zip(gate_up.chunks(2 * n_ff));
    pool::rows(rows, |(o, gate_up)| {
        let (g, u) = gate_up.split_at(n_ff);
        elementwise::gate(activation, g, u, o);
    });
}
