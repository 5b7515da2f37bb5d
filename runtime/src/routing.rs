//! Which expert sees which token, and with what weight.

use std::cmp::Ordering;

use std::ops::Range;

use gguf_models::hparams::MAX_EXPERT_GROUPS;
use gguf_models::spec::{ExpertGroups, Gating, Moe};

use crate::kernels::elementwise::{add_scaled, scale, sigmoid, softmax, softplus};
use crate::pool;

/// The smallest sum that chosen weights are divided by, 2^-14.
const MIN_WEIGHT_SUM: f32 = 6.103_515_6e-5;

/// Which expert sees which token. A pair is a token with one of its experts.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    /// Router logits, then probabilities: `n_expert` a token.
    pub(crate) probs: Vec<f32>,
    /// What experts are chosen by, where that is not the probability.
    selection: Vec<f32>,
    /// Chosen experts: `n_used` a token, the most probable first.
    experts: Vec<u32>,
    /// Weight of each choice.
    pub(crate) weights: Vec<f32>,
    /// Where the pairs of each expert start, and their number at the end.
    pub(crate) starts: Vec<usize>,
    /// Next free pair of each expert while pairs are numbered.
    next: Vec<usize>,
    /// Token of each pair.
    pub(crate) source: Vec<u32>,
    /// `0, 1, 2, ..`: each pair's own row.
    pub(crate) own_row: Vec<u32>,
    /// Pair of each choice.
    pair: Vec<u32>,
    /// Weight of each pair.
    pair_weights: Vec<f32>,
    /// Experts' results, a row a pair.
    pub(crate) down: Vec<f32>,
}

impl Routing {
    /// Turns logits into chosen experts and their weights. `bias` is added to probabilities for the choice alone.
    pub(crate) fn choose(&mut self, spec: &Moe, bias: Option<&[f32]>) {
        let n = self.probs.len() / spec.n_expert;
        self.experts.resize(n * spec.n_used, 0);
        self.weights.resize(n * spec.n_used, 0.0);
        self.selection.resize(n * spec.n_expert, 0.0);
        let chosen = self
            .experts
            .chunks_mut(spec.n_used)
            .zip(self.weights.chunks_mut(spec.n_used));
        let rows = self
            .probs
            .chunks_mut(spec.n_expert)
            .zip(self.selection.chunks_mut(spec.n_expert))
            .zip(chosen);
        pool::rows(rows, |((probs, selection), (experts, weights))| {
            if spec.weighted_input {
                // Logits far from 0 have the same probability.
                selection.copy_from_slice(probs);
                probabilities(spec.gating, probs);
                top_k(selection, experts);
                return take_weights(spec, probs, experts, weights);
            }
            probabilities(spec.gating, probs);
            let by = match (bias, spec.groups) {
                (None, None) => &*probs,
                (bias, groups) => {
                    selection.copy_from_slice(probs);
                    for (s, b) in selection.iter_mut().zip(bias.unwrap_or_default()) {
                        *s += b;
                    }
                    if let Some(groups) = groups {
                        keep_best_groups(groups, selection);
                    }
                    &*selection
                }
            };
            top_k(by, experts);
            take_weights(spec, probs, experts, weights);
        });
    }

    /// Numbers the pairs by expert and, for one expert, by token.
    pub(crate) fn group(&mut self, spec: &Moe) {
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
        self.pair_weights.resize(n_pairs, 0.0);
        for (choice, &e) in self.experts.iter().enumerate() {
            let next = &mut self.next[e as usize];
            self.source[*next] = (choice / spec.n_used) as u32;
            self.pair[choice] = *next as u32;
            self.pair_weights[*next] = self.weights[choice];
            *next += 1;
        }
        self.own_row.clear();
        self.own_row.extend(0..n_pairs as u32);
    }

    /// The weight of each pair, in the order of the pairs.
    pub(crate) fn pair_weights(&self) -> &[f32] {
        &self.pair_weights
    }

    /// Sums each token's results in the order of its choices.
    pub(crate) fn combine(&self, n_used: usize, n_embd: usize, y: &mut Vec<f32>) {
        pool::resize(y, self.experts.len() / n_used * n_embd, 0.0);
        let choices = self.pair.chunks(n_used).zip(self.weights.chunks(n_used));
        let rows = y.chunks_mut(n_embd).zip(choices);
        pool::rows(rows, |(row, (pairs, weights))| {
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

/// Pairs of tokens with some of the experts, beside those of a [`Routing`].
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// Where the pairs of each expert start, and their number at the end.
    pub(crate) starts: Vec<usize>,
    /// Token of each pair.
    pub(crate) tokens: Vec<u32>,
    /// `0, 1, 2, ..`: each pair's own row.
    pub(crate) own_row: Vec<u32>,
    /// Weight of each pair, where inputs are multiplied with these.
    pub(crate) weights: Vec<f32>,
}

impl Pairs {
    /// Each of `experts` with the tokens that are `shown` or routed to it, in order.
    pub(crate) fn gather(
        &mut self,
        spec: &Moe,
        routing: &Routing,
        experts: Range<usize>,
        shown: impl Fn(usize) -> bool,
    ) {
        self.starts.clear();
        self.tokens.clear();
        self.weights.clear();
        let mut as_chosen = vec![0; spec.n_used];
        let mut weights = vec![0.0; spec.n_used];
        for e in 0..spec.n_expert {
            self.starts.push(self.tokens.len());
            if !experts.contains(&e) {
                continue;
            }
            let expert = e as u32;
            for (token, chosen) in routing.experts.chunks_exact(spec.n_used).enumerate() {
                let slot = chosen.iter().position(|&c| c == expert);
                if slot.is_none() && !shown(token) {
                    continue;
                }
                self.tokens.push(token as u32);
                if spec.weighted_input {
                    // One that was not chosen weighs what it would in the last place.
                    as_chosen.copy_from_slice(chosen);
                    let slot = slot.unwrap_or(spec.n_used - 1);
                    as_chosen[slot] = expert;
                    let probs = &routing.probs[token * spec.n_expert..][..spec.n_expert];
                    take_weights(spec, probs, &as_chosen, &mut weights);
                    self.weights.push(weights[slot]);
                }
            }
        }
        self.starts.push(self.tokens.len());
        self.own_row.clear();
        self.own_row.extend(0..self.tokens.len() as u32);
    }
}

/// Logits become probabilities; where these need the choice first, they stay.
fn probabilities(gating: Gating, logits: &mut [f32]) {
    match gating {
        Gating::Softmax => softmax(logits),
        Gating::Sigmoid => sigmoid(logits),
        Gating::SoftmaxOfChosen => {}
        Gating::SqrtSoftplus => {
            for v in logits {
                *v = softplus(*v).sqrt();
            }
        }
    }
}

/// The weights of the chosen experts.
fn take_weights(spec: &Moe, probs: &[f32], experts: &[u32], weights: &mut [f32]) {
    for (w, &e) in weights.iter_mut().zip(experts) {
        *w = probs[e as usize];
    }
    if spec.gating == Gating::SoftmaxOfChosen {
        softmax(weights);
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
}

/// Sets the experts of all but the best groups to minus infinity; of equal groups the first is kept.
fn keep_best_groups(groups: ExpertGroups, selection: &mut [f32]) {
    let size = selection.len() / groups.n;
    let score = |group: &[f32]| -> f32 {
        let mut best = [f32::NEG_INFINITY; 2];
        for &v in group {
            if v > best[0] {
                best = [v, best[0]];
            } else if v > best[1] {
                best[1] = v;
            }
        }
        best[..groups.n_scored.min(size).min(2)].iter().sum()
    };
    // Few groups: each is compared with all others.
    let better = |selection: &[f32], i: usize| {
        let own = score(&selection[i * size..][..size]);
        (0..groups.n)
            .filter(|&j| {
                let other = score(&selection[j * size..][..size]);
                other > own || (other == own && j < i)
            })
            .count()
    };
    let mut dropped = [0u64; MAX_EXPERT_GROUPS / 64];
    for i in 0..groups.n {
        if better(selection, i) >= groups.n_used {
            dropped[i / 64] |= 1 << (i % 64);
        }
    }
    for (i, group) in selection.chunks_exact_mut(size).enumerate() {
        if dropped[i / 64] >> (i % 64) & 1 == 1 {
            group.fill(f32::NEG_INFINITY);
        }
    }
}

/// The `out.len()` largest of `probs` in descending order; of equals, the lower index first. What is no number is not
/// larger than anything.
fn top_k(probs: &[f32], out: &mut [u32]) {
    let mut n = 0;
    for (e, p) in probs.iter().enumerate() {
        let larger = |kept: &u32| matches!(p.partial_cmp(&probs[*kept as usize]), Some(Ordering::Greater));
        let before = out[..n].iter().rposition(|kept| !larger(kept));
        let at = before.map_or(0, |before| before + 1);
        if at < out.len() {
            n = out.len().min(n + 1);
            out.copy_within(at..n - 1, at + 1);
            out[at] = e as u32;
        }
    }
    assert_eq!(n, out.len(), "the description has no more choices than experts");
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
            groups: None,
            norm_weights: true,
            weights_scale: 1.0,
            weighted_input: false,
            activation: Activation::Silu,
            shared: None,
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
        r.choose(&spec(), None);
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
    fn experts_are_gathered_with_weights_of_their_own() {
        let spec = Moe {
            gating: Gating::Sigmoid,
            norm_weights: false,
            weighted_input: true,
            n_used: 1,
            ..spec()
        };
        let logits = [0., 3., 1., 0., 2., 0., 0., 1.];
        let mut r = Routing {
            probs: logits.to_vec(),
            ..Routing::default()
        };
        r.choose(&spec, None);
        assert_eq!(r.experts, [1, 0]);
        let mut pairs = Pairs::default();
        // Token 1 is shown to all; token 0 meets its own expert alone.
        pairs.gather(&spec, &r, 1..3, |token| token == 1);
        assert_eq!(pairs.starts, [0, 0, 2, 3, 3]);
        assert_eq!(pairs.tokens, [0, 1, 1]);
        assert_eq!(pairs.own_row, [0, 1, 2]);
        let mut expected = [logits[1], logits[4 + 1], logits[4 + 2]];
        sigmoid(&mut expected);
        assert_eq!(pairs.weights, expected);
    }

    #[test]
    fn results_are_weighted_and_summed() {
        let mut r = Routing {
            probs: vec![0., 1., 1., 0.],
            ..Routing::default()
        };
        r.choose(&spec(), None);
        r.group(&spec());
        r.down = vec![2.0, 4.0, 6.0, 8.0];
        let mut y = Vec::new();
        r.combine(2, 2, &mut y);
        assert_eq!(y, [4.0, 6.0]);
    }
}
