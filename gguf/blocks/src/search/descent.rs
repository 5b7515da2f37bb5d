//! Signed codes without a minimum, improved one at a time.

use super::{LANES, Lane, TINY, clamp, nint};

/// Passes over the codes at most.
const PASSES: usize = 5;

/// For each lane, codes and the scale of `x ≈ scale · (code - n_max)` with weights `x²`: starts from the scale of
/// the largest magnitude, then changes single codes while that lowers the error. Codes are in `0..2 * n_max`;
/// all 0 in a lane of zeros, with scale 0.
pub(crate) fn symmetric_descent<const N: usize>(n_max: f32, x: &[Lane; N]) -> (Lane, [[u8; N]; LANES]) {
    let mut max = [0.0; LANES];
    for x in x {
        for j in 0..LANES {
            max[j] = if x[j].abs() > f32::abs(max[j]) {
                x[j]
            } else {
                max[j]
            };
        }
    }
    let mut codes = [[0.0; LANES]; N];
    let mut sum_lx = [0.0; LANES];
    let mut sum_l2 = [0.0; LANES];
    for (x, code) in x.iter().zip(&mut codes) {
        for j in 0..LANES {
            let l = clamp(nint(-n_max / max[j] * x[j]), -n_max, n_max - 1.0);
            let w = x[j] * x[j];
            code[j] = l;
            sum_lx[j] += w * x[j] * l;
            sum_l2[j] += w * l * l;
        }
    }
    for _ in 0..PASSES {
        // A lane without a change has none in a later pass either, so the lanes need not stop one by one.
        if !pass(n_max, x, &mut codes, &mut sum_lx, &mut sum_l2) {
            break;
        }
    }

    let mut scale = [0.0; LANES];
    let mut out = [[0; N]; LANES];
    for j in 0..LANES {
        if max[j].abs() < TINY {
            continue;
        }
        scale[j] = if sum_l2[j] > 0.0 {
            sum_lx[j] / sum_l2[j]
        } else {
            0.0
        };
        for (out, code) in out[j].iter_mut().zip(&codes) {
            *out = (code[j] + n_max) as i32 as u8;
        }
    }
    (scale, out)
}

/// Visits each code once; whether any changed.
#[inline]
fn pass<const N: usize>(
    n_max: f32,
    x: &[Lane; N],
    codes: &mut [Lane; N],
    sum_lx: &mut Lane,
    sum_l2: &mut Lane,
) -> bool {
    let mut changed = 0;
    for (x, code) in x.iter().zip(codes) {
        for j in 0..LANES {
            let (x, old) = (x[j], code[j]);
            let w = x * x;
            let rest_lx = sum_lx[j] - w * x * old;
            let rest_l2 = sum_l2[j] - w * old * old;
            let new = clamp(nint(x * rest_l2 / rest_lx), -n_max, n_max - 1.0);
            let lx = rest_lx + w * x * new;
            let l2 = rest_l2 + w * new * new;
            let better = lx * lx * sum_l2[j] > sum_lx[j] * sum_lx[j] * l2;
            let accept = (rest_lx > 0.0) & (new != old) & (l2 > 0.0) & better;
            code[j] = if accept { new } else { old };
            sum_lx[j] = if accept { lx } else { sum_lx[j] };
            sum_l2[j] = if accept { l2 } else { sum_l2[j] };
            changed |= u32::from(accept);
        }
    }
    changed != 0
}
