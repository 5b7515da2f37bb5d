//! Row-wise operations between the matrix products: norms, rotation, gates, softmax, sums.
//!
//! Plain loops over fixed lanes, which compile to vector code at any level and give the same bits there.

mod loops;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Add;

use gguf_blocks::{Cpu, Level};

use gguf_models::spec::{Activation, Rope, RopeKind};

use super::exp;

/// Partial sums of a row; element `i` goes to lane `i % LANES`.
const LANES: usize = 8;

/// The sum of eight partial sums, pairwise: the order that every sum over lanes has.
#[inline]
pub(crate) fn lane_sum<T: Add<Output = T>>([a, b, c, d, e, f, g, h]: [T; LANES]) -> T {
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// Functions over the loops of the same names.
macro_rules! levels {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(
            $(#[$doc])*
            $vis fn $name($($arg: $kind),*) $(-> $result)? {
                // The bits are the same at every level.
                match Cpu::best().level().base() {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => x86::$name($($arg),*),
                    _ => loops::$name($($arg),*),
                }
            }
        )*
    };
}

levels! {
    /// `out = x / sqrt(mean(x^2) + eps) * weight` for one row.
    pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]);
    /// [`rms_norm`] onto its own input.
    pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32);
    /// `acc += x`.
    pub fn add(acc: &mut [f32], x: &[f32]);
    /// `acc += x * factor`.
    pub fn add_scaled(acc: &mut [f32], x: &[f32], factor: f32);
    /// `out = x * factor`.
    pub fn scale(x: &[f32], factor: f32, out: &mut [f32]);
    /// `x *= factor`.
    pub fn scale_in_place(x: &mut [f32], factor: f32);
    /// `out = silu(gate) * up` with `silu(x) = x / (1 + e^-x)`.
    pub fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]);
    /// `silu(x)` of each element onto itself.
    pub fn silu(x: &mut [f32]);
    /// `x *= silu(gate)`.
    pub fn mul_silu(x: &mut [f32], gate: &[f32]);
    /// `x *= sigmoid(gate)`.
    pub fn mul_sigmoid(x: &mut [f32], gate: &[f32]);
    /// The sum of the products of two rows, element `i` in lane `i % 8`.
    pub fn dot(a: &[f32], b: &[f32]) -> f32;
    /// Softmax of a row onto itself; the sum is in f64, element `i` in lane `i % 8`.
    pub fn softmax(x: &mut [f32]);
    /// `1 / (1 + e^-x)` of each element onto itself.
    pub fn sigmoid(x: &mut [f32]);
    /// `out = gelu(gate) * up` with `gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    fn gelu_mul(gate: &[f32], up: &[f32], out: &mut [f32]);
    /// `out = g / (1 + e^(-alpha g)) * (u + 1)`, gates at most `limit`, ups as far from 0.
    fn swiglu_clamped(gate: &[f32], up: &[f32], alpha: f32, limit: f32, out: &mut [f32]);
    /// Rotates the pairs of an element of `low` with that of `high` at the same place.
    fn rotate_halves(low: &mut [f32], high: &mut [f32], cos: &[f32], sin: &[f32]);
    /// Rotates the pairs of neighbours.
    fn rotate_pairs(pairs: &mut [f32], cos: &[f32], sin: &[f32]);
}

/// One row of a gated network: `out = gate * up` as `activation` has it.
pub fn gate(activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match activation {
        Activation::Silu => silu_mul(gate, up, out),
        Activation::Gelu => gelu_mul(gate, up, out),
        Activation::SwigluClamped { alpha, limit } => {
            swiglu_clamped(gate, up, alpha, limit, out);
        }
    }
}

/// `cap * tanh(x / cap)` of each element onto itself.
#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub fn softcap(x: &mut [f32], cap: f32) {
    for v in x {
        *v = cap * tanh(*v / cap);
    }
}

/// Hyperbolic tangent, to about 1e-7.
#[inline]
pub(crate) fn tanh(x: f32) -> f32 {
    let e = exp(-2.0 * x.abs());
    ((1.0 - e) / (1.0 + e)).copysign(x)
}

/// `ln(1 + e^x)`.
pub(crate) fn softplus(x: f32) -> f32 {
    // Through f64, so that no platform's single-precision library decides about the bits.
    if x > 20.0 {
        x
    } else {
        f64::from(x).exp().ln_1p() as f32
    }
}

/// Cosines and sines of one rotary embedding for positions from 0 on, extended as positions come up.
#[derive(Debug)]
pub struct RopeTable {
    rope: Rope,
    /// What the angle of each pair is divided by; empty for none.
    factors: Vec<f32>,
    /// Position after position: `n_rot / 2` cosines, then as many sines.
    rows: Vec<f32>,
}

impl RopeTable {
    /// An empty table with address space for `n_ctx` positions; `factors` has an element for each pair, or none.
    pub fn new(rope: Rope, factors: Vec<f32>, n_ctx: usize) -> Self {
        Self {
            rope,
            factors,
            rows: Vec::with_capacity(n_ctx * Self::row_len(&rope)),
        }
    }

    /// The embedding.
    pub fn rope(&self) -> &Rope {
        &self.rope
    }

    /// Numbers that one position takes.
    pub fn row_len(rope: &Rope) -> usize {
        rope.n_rot / 2 * 2
    }

    /// Extends the table to `n_pos` positions.
    pub fn extend(&mut self, n_pos: usize) {
        let half = self.rope.n_rot / 2;
        if half == 0 {
            return;
        }
        // Through f64, so that no platform's single-precision library decides about the bits.
        let factor = f64::from(self.rope.base).powf(-2.0 / self.rope.n_rot as f64) as f32;
        for pos in self.rows.len() / (2 * half)..n_pos {
            for part in [f64::cos, f64::sin] {
                let mut theta = pos as f32;
                for i in 0..half {
                    let angle = self.angle(i, theta);
                    self.rows
                        .push(part(f64::from(angle)) as f32 * self.rope.magnitude);
                    theta *= factor;
                }
            }
        }
    }

    /// The angle of pair `i`, which would be `theta` without any scaling.
    fn angle(&self, i: usize, theta: f32) -> f32 {
        let theta = theta / self.factors.get(i).copied().unwrap_or(1.0);
        let scaled = self.rope.scale * theta;
        match self.rope.yarn {
            None => scaled,
            Some(yarn) => {
                let ramp = (i as f32 - yarn.low) / (yarn.high - yarn.low).max(0.001);
                let share = (1.0 - ramp.clamp(0.0, 1.0)) * yarn.ext_factor;
                scaled * (1.0 - share) + theta * share
            }
        }
    }

    /// Rotates one head of a position that the table holds; elements from `n_rot` on stay.
    pub fn rotate(&self, pos: usize, head: &mut [f32]) {
        let half = self.rope.n_rot / 2;
        let (cos, sin) = self.rows[pos * 2 * half..][..2 * half].split_at(half);
        match self.rope.kind {
            RopeKind::Neox => {
                let (low, high) = head[..2 * half].split_at_mut(half);
                rotate_halves(low, high, cos, sin);
            }
            RopeKind::Norm => rotate_pairs(&mut head[..2 * half], cos, sin),
        }
    }
}

#[cfg(test)]
mod tests {
    use gguf_models::spec::RopeFactors;

    use super::*;

    fn close(a: f32, b: f64, tolerance: f64) {
        assert!(
            (f64::from(a) - b).abs() <= tolerance * b.abs().max(1e-3),
            "{a} is not {b}"
        );
    }

    #[test]
    fn norm_has_unit_mean_square_times_weight() {
        let x: Vec<f32> = (0..37).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        let mut out = vec![0.0; 37];
        rms_norm(&x, &[2.0; 37], 0.0, &mut out);
        let mean = out.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / 37.0;
        assert!((mean - 4.0).abs() < 1e-5);
        let mut same = x.clone();
        rms_norm_in_place(&mut same, &[2.0; 37], 0.0);
        assert_eq!(same, out);
    }

    #[test]
    fn gates_match_f64() {
        let gate: Vec<f32> = (-50..50).map(|i| i as f32 * 0.4).collect();
        let mut out = vec![0.0; gate.len()];
        silu_mul(&gate, &vec![1.5; gate.len()], &mut out);
        for (&g, &o) in gate.iter().zip(&out) {
            close(o, 1.5 * f64::from(g) / (1.0 + (-f64::from(g)).exp()), 1e-6);
        }
        let mut p = vec![1.0f32, 3.0, 2.0];
        softmax(&mut p);
        let sum = 1f64.exp() + 2f64.exp() + 3f64.exp();
        close(p[1], 3f64.exp() / sum, 1e-6);
        let mut s = vec![0.5f32];
        sigmoid(&mut s);
        close(s[0], 1.0 / (1.0 + (-0.5f64).exp()), 1e-6);
    }

    #[test]
    fn rotation_pairs_and_angles() {
        for kind in [RopeKind::Neox, RopeKind::Norm] {
            let mut table = RopeTable::new(
                Rope {
                    kind,
                    n_rot: 4,
                    base: 100.0,
                    scale: 1.0,
                    factors: RopeFactors::One,
                    yarn: None,
                    magnitude: 1.0,
                },
                Vec::new(),
                8,
            );
            table.extend(3);
            table.extend(8);
            let mut head = [1.0f32, 2.0, 3.0, 4.0, 5.0];
            table.rotate(7, &mut head);
            // Angles 7 and 7 * 100^(-1/2) = 0.7.
            let pair = |x: f64, y: f64, t: f64| (x * t.cos() - y * t.sin(), x * t.sin() + y * t.cos());
            let want = match kind {
                RopeKind::Neox => {
                    let ((a, c), (b, d)) = (pair(1.0, 3.0, 7.0), pair(2.0, 4.0, 0.7));
                    [a, b, c, d, 5.0]
                }
                RopeKind::Norm => {
                    let ((a, b), (c, d)) = (pair(1.0, 2.0, 7.0), pair(3.0, 4.0, 0.7));
                    [a, b, c, d, 5.0]
                }
            };
            for (h, w) in head.iter().zip(want) {
                close(*h, w, 1e-5);
            }
        }
    }
}
