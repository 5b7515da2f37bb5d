//! The loops, which are compiled again for each level.

use super::{LANES, lane_sum};
use crate::kernels::exp;

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
fn rms_scale(x: &[f32], eps: f32) -> f32 {
    let mut lanes = [0.0f64; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for c in &mut chunks {
        for (lane, v) in lanes.iter_mut().zip(c) {
            *lane += f64::from(v * v);
        }
    }
    for (lane, v) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane += f64::from(v * v);
    }
    let sum = lane_sum(lanes);
    let mean = (sum / x.len() as f64) as f32;
    1.0 / (mean + eps).sqrt()
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let scale = rms_scale(x, eps);
    for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
        *o = v * scale * w;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    let scale = rms_scale(x, eps);
    for (v, w) in x.iter_mut().zip(weight) {
        *v = *v * scale * w;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn add(acc: &mut [f32], x: &[f32]) {
    for (a, v) in acc.iter_mut().zip(x) {
        *a += v;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn add_scaled(acc: &mut [f32], x: &[f32], factor: f32) {
    for (a, v) in acc.iter_mut().zip(x) {
        *a += v * factor;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn scale(x: &[f32], factor: f32, out: &mut [f32]) {
    for (o, v) in out.iter_mut().zip(x) {
        *o = v * factor;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn scale_in_place(x: &mut [f32], factor: f32) {
    for v in x {
        *v *= factor;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
        *o = g / (1.0 + exp(-g)) * u;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn silu(x: &mut [f32]) {
    for v in x {
        *v /= 1.0 + exp(-*v);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn mul_silu(x: &mut [f32], gate: &[f32]) {
    for (v, g) in x.iter_mut().zip(gate) {
        *v *= g / (1.0 + exp(-g));
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn mul_sigmoid(x: &mut [f32], gate: &[f32]) {
    for (v, g) in x.iter_mut().zip(gate) {
        *v /= 1.0 + exp(-g);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (a8, a_rest) = a.as_chunks::<LANES>();
    let (b8, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a8.iter().zip(b8) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane += a * b;
    }
    lane_sum(lanes)
}

#[inline(always)]
pub(super) fn gelu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    const FACTOR: f32 = 0.797_884_6;
    for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
        let inner = FACTOR * g * (1.0 + 0.044_715 * g * g);
        // (1 + tanh(y)) / 2 = 1 / (1 + e^-2y)
        *o = g / (1.0 + exp(-2.0 * inner)) * u;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0f64; LANES];
    for part in x.chunks_mut(LANES) {
        for (v, sum) in part.iter_mut().zip(&mut sums) {
            *v = exp(*v - max);
            *sum += f64::from(*v);
        }
    }
    let factor = (1.0 / lane_sum(sums)) as f32;
    for v in x {
        *v *= factor;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn sigmoid(x: &mut [f32]) {
    for v in x {
        *v = 1.0 / (1.0 + exp(-*v));
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn swiglu_clamped(gate: &[f32], up: &[f32], alpha: f32, limit: f32, out: &mut [f32]) {
    for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
        let (g, u) = (g.min(limit), u.clamp(-limit, limit));
        *o = g / (1.0 + exp(-alpha * g)) * (u + 1.0);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn rotate_halves(low: &mut [f32], high: &mut [f32], cos: &[f32], sin: &[f32]) {
    for (((a, b), c), s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn rotate_pairs(pairs: &mut [f32], cos: &[f32], sin: &[f32]) {
    for ((pair, c), s) in pairs.chunks_exact_mut(2).zip(cos).zip(sin) {
        (pair[0], pair[1]) = (pair[0] * c - pair[1] * s, pair[0] * s + pair[1] * c);
    }
}
