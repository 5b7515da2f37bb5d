//! A block of positions in plain Rust, and what the levels share.

use super::tile::{Softmax, Step};
use super::{BLOCK, LANES};
use crate::kernels::elementwise::softcap;
use crate::kernels::exp::exp_below_0;

/// Takes a block into the softmax and the sums of weighted values of its queries.
pub(super) fn run<const N: usize>(
    step: &Step<'_, N>,
    softmax: &mut [Softmax; N],
    out: &mut [f32],
    row: &mut Vec<f32>,
) {
    let mut scores = [[f32::NEG_INFINITY; BLOCK]; N];
    row.clear();
    row.resize(step.k.dim().next_multiple_of(LANES), 0.0);
    for i in step.seen.clone() {
        step.k.decode(step.first + i, &mut row[..step.k.dim()]);
        for (scores, q) in scores.iter_mut().zip(step.q) {
            scores[i] = dot(row, q);
        }
    }
    let factors = weigh_with(step, &mut scores, softmax);
    let (dim, stride) = (step.v.dim(), out.len() / N);
    row.clear();
    row.resize(step.v.whole_dim() + N * dim, 0.0);
    let (row, sums) = row.split_at_mut(step.v.whole_dim());
    for i in step.seen.clone() {
        step.v.decode(step.first + i, row);
        for (sums, p) in sums.chunks_exact_mut(dim.max(1)).zip(&scores) {
            for (sum, v) in sums.iter_mut().zip(&*row) {
                *sum = v.mul_add(p[i], *sum);
            }
        }
    }
    let outs = out
        .chunks_exact_mut(stride.max(1))
        .zip(sums.chunks_exact(dim.max(1)));
    for ((out, sums), factor) in outs.zip(factors) {
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = out.mul_add(factor, *sum);
        }
    }
}

fn dot(k: &[f32], q: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for (k, q) in k.as_chunks::<LANES>().0.iter().zip(q.as_chunks::<LANES>().0) {
        for ((sum, k), q) in sums.iter_mut().zip(k).zip(q) {
            *sum = k.mul_add(*q, *sum);
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

/// Turns scores into weights relative to the new maximum; the results are what earlier weights must be multiplied with.
/// Scores of positions that are not seen become 0 within the vectors that have one seen, the others stay.
#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn weigh_with<const N: usize>(
    step: &Step<'_, N>,
    scores: &mut [[f32; BLOCK]; N],
    softmax: &mut [Softmax; N],
) -> [f32; N] {
    let vectors = step.seen.start / LANES..step.seen.end.div_ceil(LANES);
    let mut factors = [0.0; N];
    for ((scores, softmax), factor) in scores.iter_mut().zip(softmax).zip(&mut factors) {
        let scores = &mut scores[vectors.start * LANES..vectors.end * LANES];
        if step.cap != 0.0 {
            softcap(scores, step.cap);
        }
        let hidden = step.seen.start - vectors.start * LANES;
        scores[..hidden].fill(f32::NEG_INFINITY);
        scores[step.seen.end - vectors.start * LANES..].fill(f32::NEG_INFINITY);
        let scores = scores.as_chunks_mut::<LANES>().0;
        let mut max = [softmax.max; LANES];
        for s in &*scores {
            for (max, s) in max.iter_mut().zip(s) {
                *max = if *s > *max { *s } else { *max };
            }
        }
        let max = max
            .into_iter()
            .fold(softmax.max, |a, b| if b > a { b } else { a });
        *factor = exp_below_0(softmax.max - max);
        let mut sums = [0.0; LANES];
        for s in scores {
            for (s, sum) in s.iter_mut().zip(&mut sums) {
                *s = exp_below_0(*s - max);
                *sum += *s;
            }
        }
        for (own, sum) in softmax.sums.iter_mut().zip(sums) {
            *own = own.mul_add(*factor, sum);
        }
        softmax.max = max;
    }
    factors
}

/// What two stretches have: `out * factor + later * later_factor`, every operation rounded.
#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn mix(out: &mut [f32], factor: f32, later: &[f32], later_factor: f32) {
    for (out, later) in out.iter_mut().zip(later) {
        *out = *out * factor + later * later_factor;
    }
}
