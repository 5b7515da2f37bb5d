//! Mixture of experts: routing, products grouped by expert, weighted sum.

use gguf_models::spec::{Gating, Moe};
use rayon::prelude::*;

use crate::ffn::activate;
use crate::forward::{Env, MIN_ROWS, Scratch};
use crate::kernels::elementwise::{add_scaled, scale, sigmoid, softmax};
use crate::model::{FfnWeights, Tensor};

/// The smallest sum that chosen weights are divided by, 2^-14.
const MIN_WEIGHT_SUM: f32 = 6.103_515_6e-5;

/// Which expert sees which token. A pair is a token with one of its experts.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    /// Router logits, then probabilities: `n_expert` a token.
    probs: Vec<f32>,
    /// Chosen experts: `n_used` a token, the most probable first.
    experts: Vec<u32>,
    /// Weight of each choice.
    weights: Vec<f32>,
    /// Where the pairs of each expert start, and their number at the end.
    starts: Vec<usize>,
    /// Next free pair of each expert while pairs are numbered.
    next: Vec<usize>,
    /// Token of each pair.
    source: Vec<u32>,
    /// `0, 1, 2, ..`: each pair's own row.
    own_row: Vec<u32>,
    /// Pair of each choice.
    pair: Vec<u32>,
    /// Experts' results, a row a pair.
    down: Vec<f32>,
}

/// From the normed rows in `s.x` to the weighted sum of the chosen experts in `s.y`.
pub(crate) fn run(spec: &Moe, router: &Tensor, w: &FfnWeights, env: &mut Env<'_>, s: &mut Scratch) {
    let r = &mut s.routing;
    env.matmul(router, &mut s.x, &mut r.probs);
    r.choose(spec);
    r.group(spec);
    env.matmul_grouped(&w.gate, &mut s.x, &r.source, &r.starts, &mut s.gate);
    env.matmul_grouped(&w.up, &mut s.x, &r.source, &r.starts, &mut s.up);
    activate(&s.gate, &s.up, spec.n_ff, &mut s.act);
    env.matmul_grouped(&w.down, &mut s.act, &r.own_row, &r.starts, &mut r.down);
    r.combine(spec.n_used, w.down.n_rows(), &mut s.y);
}

impl Routing {
    /// Turns logits into chosen experts and their weights.
    fn choose(&mut self, spec: &Moe) {
        let n = self.probs.len() / spec.n_expert;
        self.experts.resize(n * spec.n_used, 0);
        self.weights.resize(n * spec.n_used, 0.0);
        let chosen = self
            .experts
            .par_chunks_mut(spec.n_used)
            .zip(self.weights.par_chunks_mut(spec.n_used));
        let rows = self
            .probs
            .par_chunks_mut(spec.n_expert)
            .zip(chosen)
            .with_min_len(MIN_ROWS);
        rows.for_each(|(probs, (experts, weights))| {
            match spec.gating {
                Gating::Sigmoid => sigmoid(probs),
                _ => softmax(probs),
            }
            top_k(probs, experts);
            for (w, &e) in weights.iter_mut().zip(&*experts) {
                *w = probs[e as usize];
            }
            if spec.norm_weights {
                let sum = weights.iter().sum::<f32>().max(MIN_WEIGHT_SUM);
                for w in &mut *weights {
                    *w /= sum;
                }
            }
            if spec.weights_scale != 1.0 {
                for w in weights {
                    *w *= spec.weights_scale;
                }
            }
        });
    }

    /// Numbers the pairs by expert and, for one expert, by token.
    fn group(&mut self, spec: &Moe) {
        let n_pairs = self.experts.len();
        self.starts.clear();
        self.starts.resize(spec.n_expert + 1, 0);
        for &e in &self.experts {
            self.starts[e as usize + 1] += 1;
        }
        for e in 0..spec.n_expert {
            self.starts[e + 1] += self.starts[e];
        }
        self.next.clear();
        self.next.extend_from_slice(&self.starts[..spec.n_expert]);
        self.source.resize(n_pairs, 0);
        self.pair.resize(n_pairs, 0);
        for (choice, &e) in self.experts.iter().enumerate() {
            let next = &mut self.next[e as usize];
            self.source[*next] = (choice / spec.n_used) as u32;
            self.pair[choice] = *next as u32;
            *next += 1;
        }
        self.own_row.clear();
        self.own_row.extend(0..n_pairs as u32);
    }

    /// Sums each token's results in the order of its choices.
    fn combine(&self, n_used: usize, n_embd: usize, y: &mut Vec<f32>) {
        y.resize(self.experts.len() / n_used * n_embd, 0.0);
        let choices = self.pair.par_chunks(n_used).zip(self.weights.par_chunks(n_used));
        let rows = y.par_chunks_mut(n_embd).zip(choices).with_min_len(MIN_ROWS);
        rows.for_each(|(row, (pairs, weights))| {
            for (slot, (&p, &w)) in pairs.iter().zip(weights).enumerate() {
                let result = &self.down[p as usize * n_embd..][..n_embd];
                if slot == 0 {
                    scale(result, w, row);
                } else {
                    add_scaled(row, result, w);
                }
            }
        });
    }
}

/// The `out.len()` largest of `probs` in descending order; of equals, the lower index first.
fn top_k(probs: &[f32], out: &mut [u32]) {
    for slot in 0..out.len() {
        let (taken, rest) = out.split_at_mut(slot);
        let mut best: Option<usize> = None;
        for (e, p) in probs.iter().enumerate() {
            if best.is_none_or(|b| *p > probs[b]) && !taken.contains(&(e as u32)) {
                best = Some(e);
            }
        }
        rest[0] = best.expect("the description has no more choices than experts") as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gguf_models::spec::Activation;

    fn spec() -> Moe {
        Moe {
            n_expert: 4,
            n_used: 2,
            n_ff: 32,
            gating: Gating::Softmax,
            norm_weights: true,
            weights_scale: 1.0,
            activation: Activation::Silu,
        }
    }

    #[test]
    fn ties_go_to_the_lower_index() {
        let mut out = [0; 3];
        top_k(&[0.1, 0.4, 0.4, 0.1], &mut out);
        assert_eq!(out, [1, 2, 0]);
        top_k(&[f32::NAN; 4], &mut out);
        assert_eq!(out, [0, 1, 2]);
    }

    #[test]
    fn pairs_are_sorted_by_expert_then_token() {
        let mut r = Routing {
            probs: vec![0., 3., 1., 0., 2., 0., 0., 1., 0., 9., 0., 8.],
            ..Routing::default()
        };
        r.choose(&spec());
        assert_eq!(r.experts, [1, 2, 0, 3, 1, 3]);
        for w in r.weights.chunks(2) {
            assert!((w[0] + w[1] - 1.0).abs() < 1e-6 && w[0] > w[1]);
        }
        r.group(&spec());
        assert_eq!(r.starts, [0, 1, 3, 4, 6]);
        assert_eq!(r.source, [1, 0, 2, 0, 1, 2]);
        assert_eq!(r.pair, [1, 3, 0, 4, 2, 5]);
    }

    #[test]
    fn results_are_weighted_and_summed() {
        let mut r = Routing {
            probs: vec![0., 1., 1., 0.],
            ..Routing::default()
        };
        r.choose(&spec());
        r.group(&spec());
        r.down = vec![2.0, 4.0, 6.0, 8.0];
        let mut y = Vec::new();
        r.combine(2, 2, &mut y);
        assert_eq!(y, [4.0, 6.0]);
    }
}
