//! Codes from zero up without a minimum, for numbers that are not negative: `x ≈ scale · code`.

use super::{TINY, nint};

/// Passes over the codes at most.
const PASSES: usize = 5;

/// Finds codes in `0..=n_max` and the scale, first over a grid, then by changing single codes. A negative `x`
/// gives a code that wrapped round in 8 bits, as the files of the reference have it.
pub(crate) fn positive<const N: usize>(n_max: f32, x: &[f32; N], w: &[f32; N], codes: &mut [u8; N]) -> f32 {
    let max = x.iter().fold(0.0, |m, &v| if v > m { v } else { m });
    if max < TINY {
        codes.fill(0);
        return 0.0;
    }
    let factor = best_factor(n_max, max, x, w);
    let mut sum_lx = 0.0;
    let mut sum_l2 = 0.0;
    for ((code, &x), &w) in codes.iter_mut().zip(x).zip(w) {
        let l = nint(factor * x).min(n_max);
        *code = l as i32 as u8;
        sum_lx += w * x * l;
        sum_l2 += w * l * l;
    }
    for _ in 0..PASSES {
        let mut changed = false;
        for ((code, &x), &w) in codes.iter_mut().zip(x).zip(w) {
            let old = f32::from(*code);
            let mut lx = sum_lx - w * x * old;
            let mut l2 = sum_l2 - w * old * old;
            if !(lx > 0.0 && l2 > 0.0) {
                continue;
            }
            let new = nint(x * l2 / lx).min(n_max);
            if new == old {
                continue;
            }
            lx += w * x * new;
            l2 += w * new * new;
            if lx * lx * sum_l2 > sum_lx * sum_lx * l2 {
                *code = new as i32 as u8;
                (sum_lx, sum_l2) = (lx, l2);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    if sum_l2 > 0.0 { sum_lx / sum_l2 } else { 0.0 }
}

/// The factor from numbers to codes with the least error among the plain one and four to either side.
fn best_factor<const N: usize>(n_max: f32, max: f32, x: &[f32; N], w: &[f32; N]) -> f32 {
    let mut factor = n_max / max;
    let scale = 1.0 / factor;
    let mut best = 0.0;
    for (&x, &w) in x.iter().zip(w) {
        let diff = x - scale * f32::from(nint(factor * x) as i32 as u8);
        best += w * diff * diff;
    }
    let mut tries = [0.0; 8];
    for (i, t) in tries.iter_mut().enumerate() {
        let step = if i < 4 { i as i32 - 4 } else { i as i32 - 3 };
        *t = (0.1 * step as f32 + n_max) / max;
    }
    let scales = tries.map(|t| 1.0 / t);
    let mut errors = [0.0; 8];
    for (&x, &w) in x.iter().zip(w) {
        for t in 0..8 {
            let l = nint(tries[t] * x);
            let l = if l < n_max { l } else { n_max };
            let diff = x - scales[t] * l;
            errors[t] += w * diff * diff;
        }
    }
    for (error, t) in errors.into_iter().zip(tries) {
        if error < best {
            best = error;
            factor = t;
        }
    }
    factor
}
