//! Signed codes without a minimum: `x ≈ scale · (code - n_max)`.

use super::{TINY, clamp, nint, signed_max};

/// Starting scales tried: the plain one and nine to either side of it; one lane is spare.
const TRIES: usize = 20;

/// Finds the scale that minimises the weighted squared error over a grid of starting scales. Fills `codes` with
/// values in `0..2 * n_max` and returns the scale, whose sign is free.
pub(crate) fn symmetric<const N: usize>(n_max: f32, x: &[f32; N], w: &[f32; N], codes: &mut [u8; N]) -> f32 {
    let max = signed_max(x);
    if max.abs() < TINY {
        codes.fill(0);
        return 0.0;
    }
    let mut inverse = [-n_max / max; TRIES];
    for (i, inv) in inverse[1..19].iter_mut().enumerate() {
        let step = if i < 9 { i as i32 - 9 } else { i as i32 - 8 };
        *inv = -(n_max + 0.1 * step as f32) / max;
    }
    let (sum_lx, sum_l2) = sums(n_max, x, w, &inverse);

    let mut chosen = 0;
    let mut scale = if sum_l2[0] == 0.0 {
        0.0
    } else {
        sum_lx[0] / sum_l2[0]
    };
    let mut best = scale * sum_lx[0];
    for t in 1..19 {
        if sum_l2[t] > 0.0 && sum_lx[t] * sum_lx[t] > best * sum_l2[t] {
            chosen = t;
            scale = sum_lx[t] / sum_l2[t];
            best = scale * sum_lx[t];
        }
    }
    for (code, &v) in codes.iter_mut().zip(x) {
        *code = (clamp(nint(inverse[chosen] * v), -n_max, n_max - 1.0) + n_max) as i32 as u8;
    }
    scale
}

/// `Σ w·x·l` and `Σ w·l·l` for each starting scale.
#[inline]
fn sums<const N: usize>(
    n_max: f32,
    x: &[f32; N],
    w: &[f32; N],
    inverse: &[f32; TRIES],
) -> ([f32; TRIES], [f32; TRIES]) {
    let mut sum_lx = [0.0; TRIES];
    let mut sum_l2 = [0.0; TRIES];
    for (&x, &w) in x.iter().zip(w) {
        let wx = w * x;
        for t in 0..TRIES {
            let l = clamp(nint(inverse[t] * x), -n_max, n_max - 1.0);
            sum_lx[t] += wx * l;
            sum_l2[t] += w * l * l;
        }
    }
    (sum_lx, sum_l2)
}
