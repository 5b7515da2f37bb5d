//! Mixture of experts: routing, products grouped by expert, weighted sum, and the experts that every token passes.

use rayon::prelude::*;

use crate::ffn::{self, activate};
use crate::forward::{Env, MIN_ROWS, Scratch};
use crate::kernels::Acts;
use crate::kernels::elementwise::{add, add_scaled, scale, sigmoid};
use crate::model::{MoeWeights, SharedWeights};
use crate::routing::Routing;

/// What mixtures of experts need beside what all feed-forward parts do.
#[derive(Debug, Default)]
pub(crate) struct MoeScratch {
    pub(crate) routing: Routing,
    /// Rows multiplied with the weights of their choices, a row a pair.
    weighted: Acts,
    /// Result of the experts that every token passes.
    shared: Vec<f32>,
    /// Their factor, one a token.
    shared_gate: Vec<f32>,
}

/// From the normed rows in `s.x` to the sum of the experts in `s.y`.
pub(crate) fn run(w: &MoeWeights, env: &mut Env<'_>, s: &mut Scratch) {
    let spec = &w.spec;
    let r = &mut s.moe.routing;
    env.matmul(&w.router, &mut s.x, &mut r.probs);
    r.choose(spec, w.selection_bias.as_deref());
    r.group(spec);
    let (input, source) = if spec.weighted_input {
        weigh_rows(r, &s.x, &mut s.moe.weighted);
        (&mut s.moe.weighted, &r.own_row)
    } else {
        (&mut s.x, &r.source)
    };
    env.matmul_grouped(&w.gate, input, source, &r.starts, &mut s.gate);
    env.matmul_grouped(&w.up, input, source, &r.starts, &mut s.up);
    activate(spec.activation, &s.gate, &s.up, spec.n_ff, &mut s.act);
    env.matmul_grouped(&w.down, &mut s.act, &r.own_row, &r.starts, &mut r.down);
    if spec.weighted_input {
        r.weights.fill(1.0);
    }
    r.combine(spec.n_used, w.down.n_rows(), &mut s.y);
    if let Some(shared) = &w.shared {
        add_shared(shared, env, s);
    }
}

/// Each pair's row times its weight.
fn weigh_rows(r: &Routing, x: &Acts, out: &mut Acts) {
    let n_cols = x.n_cols();
    out.reset(r.source.len(), n_cols);
    let rows = out.rows_mut().par_chunks_mut(n_cols);
    rows.zip(r.source.par_iter().zip(r.pair_weights()))
        .with_min_len(MIN_ROWS)
        .for_each(|(out, (&row, &w))| scale(&x.rows()[row as usize * n_cols..][..n_cols], w, out));
}

fn add_shared(w: &SharedWeights, env: &mut Env<'_>, s: &mut Scratch) {
    let mut shared = std::mem::take(&mut s.moe.shared);
    ffn::run_into(&w.net, env, s, &mut shared);
    let n_embd = w.net.down.n_rows();
    let rows =
        s.y.par_chunks_mut(n_embd)
            .zip(shared.par_chunks(n_embd))
            .with_min_len(MIN_ROWS);
    match &w.gate {
        None => rows.for_each(|(y, v)| add(y, v)),
        Some(gate) => {
            let factors = &mut s.moe.shared_gate;
            env.matmul(gate, &mut s.x, factors);
            sigmoid(factors);
            rows.zip(factors.par_iter())
                .for_each(|((y, v), f)| add_scaled(y, v, *f));
        }
    }
    s.moe.shared = shared;
}
