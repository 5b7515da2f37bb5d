//! The sixteen levels of `IQ4_NL` and `IQ4_XS` and the search for their scales.

use crate::search::{TINY, signed_max};

/// The values of the codes, denser near zero.
pub(crate) const LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Where one level becomes nearer than the one below; a tie takes the upper.
const MIDPOINTS: [f32; 15] = {
    let mut out = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        out[i] = (LEVELS[i] as f32 + LEVELS[i + 1] as f32) * 0.5;
        i += 1;
    }
    out
};

/// Starting scales to either side of the plain one.
const SIDE: i32 = 7;
/// Starting scales: the one that gives the largest value the lowest level, and the grid around it.
const TRIES: usize = 2 + 2 * SIDE as usize;

/// The code of the level nearest to `v`.
#[inline(always)]
fn nearest(v: f32) -> u8 {
    MIDPOINTS.iter().fold(0, |code, mid| code + u8::from(v >= *mid))
}

/// The value of the level nearest to `v`.
#[inline(always)]
fn nearest_level(v: f32) -> f32 {
    let mut level = f32::from(LEVELS[0]);
    for (i, mid) in MIDPOINTS.iter().enumerate() {
        let gap = f32::from(LEVELS[i + 1]) - f32::from(LEVELS[i]);
        level += if v >= *mid { gap } else { 0.0 };
    }
    level
}

/// The codes of `factor · x`.
pub(crate) fn codes(factor: f32, x: &[f32; 32]) -> [u8; 32] {
    x.map(|x| nearest(factor * x))
}

/// The inverse of a scale, 0 for 0.
pub(crate) fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Weights of the values of a block: by importance, or their squares.
pub(crate) fn weights(x: &[f32; 32], importance: Option<&[f32; 32]>, sigma2: f32) -> [f32; 32] {
    match importance {
        Some(importance) => crate::search::spread(x, importance, sigma2),
        None => x.map(|x| x * x),
    }
}

/// The scale of `x ≈ scale · level` with the least weighted square error among the starting scales.
pub(crate) fn scale(x: &[f32; 32], w: &[f32; 32]) -> f32 {
    let max = signed_max(x);
    if max.abs() < TINY {
        return 0.0;
    }
    let lowest = f32::from(LEVELS[0]);
    let mut factors = [1.0 / (-max / lowest); TRIES];
    for (factor, step) in factors[1..].iter_mut().zip(-SIDE..=SIDE) {
        *factor = (step as f32 + lowest) / max;
    }
    let mut sum_qx = [0.0; TRIES];
    let mut sum_q2 = [0.0; TRIES];
    for (&x, &w) in x.iter().zip(w) {
        for t in 0..TRIES {
            let q = nearest_level(factors[t] * x);
            sum_qx[t] += w * q * x;
            sum_q2[t] += w * q * q;
        }
    }
    let mut scale = if sum_q2[0] > 0.0 {
        sum_qx[0] / sum_q2[0]
    } else {
        0.0
    };
    let mut best = scale * sum_qx[0];
    for (qx, q2) in sum_qx.into_iter().zip(sum_q2).skip(1) {
        if q2 > 0.0 && qx * qx > best * q2 {
            scale = qx / q2;
            best = scale * qx;
        }
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_takes_its_nearest_level() {
        for i in -2600..2600 {
            let v = i as f32 / 20.0;
            let code = nearest(v);
            let distance = (v - f32::from(LEVELS[usize::from(code)])).abs();
            assert!(
                LEVELS.iter().all(|l| (v - f32::from(*l)).abs() >= distance),
                "{v}"
            );
            assert_eq!(nearest_level(v), f32::from(LEVELS[usize::from(code)]));
        }
        // The middle of 1 and 13 belongs to 13.
        assert_eq!((nearest(7.0), nearest(6.999_999_5)), (9, 8));
        assert_eq!((nearest(-1e9), nearest(1e9)), (0, 15));
    }
}
