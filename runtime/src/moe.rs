//! Mixture of experts: routing, products grouped by expert, weighted sum, and the experts that every token passes.

use crate::ffn::{self, activate};
use crate::forward::{Env, Scratch};
use crate::kernels::Acts;
use crate::kernels::elementwise::{add, add_scaled, scale, sigmoid};
use crate::model::{MoeWeights, SharedWeights};
use crate::observe::Input;
use crate::pool;
use crate::routing::{Pairs, Routing};

/// What mixtures of experts need beside what all feed-forward parts do.
#[derive(Debug, Default)]
pub(crate) struct MoeScratch {
    pub(crate) routing: Routing,
    /// Pairs that are computed for an observer alone.
    shown: Pairs,
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
    let share = env.observer.as_ref().map_or(0.0, |o| o.share_for_all_experts());
    let observer = if share > 0.0 {
        show_all(w, share, env, s);
        env.observer.take()
    } else {
        None
    };
    let r = &mut s.moe.routing;
    let (input, source) = if spec.weighted_input {
        weigh_rows(&r.source, r.pair_weights(), &s.x, &mut s.moe.weighted);
        (&mut s.moe.weighted, &r.own_row)
    } else {
        (&mut s.x, &r.source)
    };
    let pairs = ExpertPairs {
        starts: &r.starts,
        tokens: &r.source,
    };
    gated(w, pairs, source, env, input, (&mut s.gate, &mut s.up), &mut s.act);
    pairs.show(&w.down.name, &r.own_row, env, &mut s.act);
    env.matmul_grouped([(&w.down, &mut r.down)], &mut s.act, &r.own_row, &r.starts);
    if share > 0.0 {
        env.observer = observer;
    }
    if spec.weighted_input {
        r.weights.fill(1.0);
    }
    r.combine(spec.n_used, w.down.n_rows(), &mut s.y);
    if let Some(shared) = &w.shared {
        add_shared(shared, env, s);
    }
}

/// Pairs of tokens with experts, sorted by expert and, for one expert, by token.
#[derive(Clone, Copy)]
struct ExpertPairs<'a> {
    /// Where the pairs of each expert start, and their number at the end.
    starts: &'a [usize],
    /// Token of each pair.
    tokens: &'a [u32],
}

impl ExpertPairs<'_> {
    /// Shows an observer rows, of which pair `p` uses `source[p]`, as the input of a stack.
    fn show(self, tensor: &str, source: &[u32], env: &mut Env<'_>, rows: &mut Acts) {
        env.observe(tensor, rows, |rows, n_cols| Input::Experts {
            rows,
            n_cols,
            source,
            group_starts: self.starts,
            tokens: self.tokens,
        });
    }
}

/// Activations in front of down, one row a pair.
fn gated(
    w: &MoeWeights,
    pairs: ExpertPairs<'_>,
    source: &[u32],
    env: &mut Env<'_>,
    input: &mut Acts,
    (gate, up): (&mut Vec<f32>, &mut Vec<f32>),
    act: &mut Acts,
) {
    for stack in [&w.gate, &w.up] {
        pairs.show(&stack.name, source, env, input);
    }
    env.matmul_grouped([(&w.gate, gate), (&w.up, up)], input, source, pairs.starts);
    activate(w.spec.activation, gate, up, w.spec.n_ff, act);
}

/// Shows an observer what every expert sees of a share of the tokens, and of those that are routed to it. Experts go in
/// blocks as large as what is routed, so that memory is about the same.
fn show_all(w: &MoeWeights, share: f64, env: &mut Env<'_>, s: &mut Scratch) {
    let spec = &w.spec;
    let MoeScratch {
        routing,
        shown,
        weighted,
        ..
    } = &mut s.moe;
    for first in (0..spec.n_expert).step_by(spec.n_used) {
        let experts = first..spec.n_expert.min(first + spec.n_used);
        shown.gather(spec, routing, experts, |token| is_shown(s.place[token].1, share));
        let (input, source) = if spec.weighted_input {
            weigh_rows(&shown.tokens, &shown.weights, &s.x, weighted);
            (&mut *weighted, &shown.own_row)
        } else {
            (&mut s.x, &shown.tokens)
        };
        let pairs = ExpertPairs {
            starts: &shown.starts,
            tokens: &shown.tokens,
        };
        gated(w, pairs, source, env, input, (&mut s.gate, &mut s.up), &mut s.act);
        pairs.show(&w.down.name, &shown.own_row, env, &mut s.act);
    }
}

/// Whether a token belongs to the share: evenly spread over positions from the first on, so that it does not depend on
/// batches, and no share is none.
fn is_shown(pos: u32, share: f64) -> bool {
    let up_to = |n: f64| (n * share).ceil();
    up_to(f64::from(pos) + 1.0) > up_to(f64::from(pos))
}

/// Each pair's row times its weight.
fn weigh_rows(tokens: &[u32], weights: &[f32], x: &Acts, out: &mut Acts) {
    let n_cols = x.n_cols();
    out.reset(tokens.len(), n_cols);
    let rows = out.rows_mut().chunks_mut(n_cols);
    let x = x.rows();
    pool::rows(rows.zip(tokens.iter().zip(weights)), |(out, (&row, &w))| {
        scale(&x[row as usize * n_cols..][..n_cols], w, out);
    });
}

fn add_shared(w: &SharedWeights, env: &mut Env<'_>, s: &mut Scratch) {
    let mut shared = std::mem::take(&mut s.moe.shared);
    ffn::run_into(&w.net, env, s, &mut shared);
    let n_embd = w.net.down.n_rows();
    let rows = s.y.chunks_mut(n_embd).zip(shared.chunks(n_embd));
    match &w.gate {
        None => pool::rows(rows, |(y, v)| add(y, v)),
        Some(gate) => {
            let factors = &mut s.moe.shared_gate;
            env.matmul(gate, &mut s.x, factors);
            sigmoid(factors);
            pool::rows(rows.zip(factors.iter()), |((y, v), f)| add_scaled(y, v, *f));
        }
    }
    s.moe.shared = shared;
}
