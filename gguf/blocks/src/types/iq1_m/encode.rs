//! The encoder of `IQ1_M`.

use zerocopy::FromZeros;

use super::IQ1_M;
use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::rows;
use crate::search::lattice::Lattice;
use crate::search::lattice::WIDTH;
use crate::search::ternary::{self, Best, DOWN, Sums, UP, lanes};
use crate::search::{odd_code, positive_max, signed_max, sum_of_squares};
use crate::simd::{Encode, Simd};

/// Values of a sub-block, two groups of eight.
const B: usize = 16;
/// Places where `B` sorted values can be cut, and room for eight from each.
const PLACES: usize = B + WIDTH;

/// A sub-block: its scale, which groups move down, packed codes of its points.
#[derive(Clone, Copy, Debug, Default)]
struct Sub {
    scale: f32,
    down: [bool; 2],
    codes: [u32; 2],
}

impl Encode for IQ1_M {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let lattice = &*ternary::LATTICE;
        for (x, importance, block) in rows::weighted_pairs::<IQ1_M, 256>(src, importance, out) {
            let w = weights(x, importance);
            let mut subs = [Sub::default(); B];
            let groups = x.as_chunks::<B>().0.iter().zip(w.as_chunks::<B>().0);
            for ((x, w), sub) in groups.zip(&mut subs) {
                *sub = search(simd, lattice, x, w);
            }
            *block = pack(lattice, &subs, x, &w);
        }
    }
}

#[inline(always)]
fn weights(x: &[f32; 256], importance: Option<&[f32; 256]>) -> [f32; 256] {
    let mean = 2.0 * sum_of_squares(x) / 256.0;
    let mut w = *x;
    if let Some(importance) = importance {
        for (w, importance) in w.iter_mut().zip(importance) {
            *w = importance * (mean + *w * *w).sqrt();
        }
    } else {
        for w in &mut w {
            *w *= *w;
        }
    }
    w
}

#[inline(always)]
fn search(simd: impl Simd, lattice: &Lattice<8, 4>, x: &[f32; B], w: &[f32; B]) -> Sub {
    if signed_max(x).abs() < 1e-7 {
        return Sub::default();
    }
    let order = ternary::order(x);
    let best = best_cut(&order, x, w);
    if best.moves > 3 {
        return Sub::default();
    }
    let mirrored = best.scale < 0.0;
    let moves = if mirrored { 3 - best.moves } else { best.moves };
    let down = [moves & 2 != 0, moves & 1 != 0];
    let codes = ternary::cut(&order, best.at, mirrored);
    let values = down.map(ternary::values);
    let (codes, scale) = ternary::points(simd, lattice, &codes, values, best.scale.abs(), (x, w));
    Sub { scale, down, codes }
}

/// Sums over the sorted values of one group before each place.
struct Prefix {
    x: [f32; PLACES],
    w: [f32; PLACES],
}

impl Prefix {
    #[inline(always)]
    fn new(group: usize, order: &[u8; B], x: &[f32; B], w: &[f32; B]) -> Self {
        // Places beyond the last are no numbers, so nothing is better there.
        let mut prefix = Self {
            x: [f32::NAN; PLACES],
            w: [f32::NAN; PLACES],
        };
        let (mut sum_x, mut sum_w) = (0.0, 0.0);
        (prefix.x[0], prefix.w[0]) = (0.0, 0.0);
        for (j, i) in order.iter().enumerate() {
            let i = usize::from(*i) % B;
            if i / 8 == group {
                sum_x += w[i] * x[i];
                sum_w += w[i];
            }
            (prefix.x[j + 1], prefix.w[j + 1]) = (sum_x, sum_w);
        }
        prefix
    }
}

/// What squares of values lose where the code goes from one value to the next.
const fn steps(values: [f32; 3]) -> [f32; 2] {
    let [a, b, c] = values;
    [a * a - b * b, b * b - c * c]
}

/// The best of all pairs of places. Bit 1 of the moves: the first group is moved down; bit 0: the second.
#[inline(always)]
fn best_cut(order: &[u8; B], x: &[f32; B], w: &[f32; B]) -> Best {
    const STEPS: [[f32; 2]; 2] = [steps(UP), steps(DOWN)];
    const LAST: [f32; 2] = [UP[2], DOWN[2]];
    let prefix = [Prefix::new(0, order, x, w), Prefix::new(1, order, x, w)];
    // What the second place adds to the sums of squares, for each group and move.
    let mut second = [[[0.0; PLACES]; 2]; 2];
    for g in 0..2 {
        for m in 0..2 {
            for (second, w) in second[g][m].iter_mut().zip(&prefix[g].w) {
                *second = w * STEPS[m][1];
            }
        }
    }
    let mut best = Best::NONE;
    for first in 0..=B {
        let mut whole = [[0.0; 2]; 2];
        let mut front = [[0.0; 2]; 2];
        for g in 0..2 {
            for m in 0..2 {
                whole[g][m] = prefix[g].x[B] * LAST[m];
                front[g][m] = prefix[g].w[B] * LAST[m] * LAST[m] + prefix[g].w[first] * STEPS[m][0];
            }
        }
        for start in (first..=B).step_by(WIDTH) {
            let mut qx = [[0.0; WIDTH]; 4];
            let mut q2 = [[0.0; WIDTH]; 4];
            let mut better = [false; WIDTH];
            let next = prefix.each_ref().map(|p| lanes(&p.x, start));
            let second = second.each_ref().map(|s| s.each_ref().map(|s| lanes(s, start)));
            for j in 0..WIDTH {
                let a = prefix[0].x[first] + next[0][j];
                let b = prefix[1].x[first] + next[1][j];
                for k in 0..4 {
                    let (m, n) = (k / 2, k % 2);
                    qx[k][j] = (whole[0][m] - a) + (whole[1][n] - b);
                    q2[k][j] = (front[0][m] + second[0][m][j]) + (front[1][n] + second[1][n][j]);
                    better[j] |= qx[k][j] * qx[k][j] > best.score * q2[k][j];
                }
            }
            if better.iter().fold(false, |any, b| any | b) {
                for j in 0..WIDTH {
                    for k in 0..4 {
                        best.offer(qx[k][j], q2[k][j], (first, start + j), k);
                    }
                }
            }
        }
    }
    best
}

/// Rounds the scales and finds their unit for the points that were chosen.
#[inline(always)]
fn pack(lattice: &Lattice<8, 4>, subs: &[Sub; B], x: &[f32; 256], w: &[f32; 256]) -> IQ1_M {
    let mut block = IQ1_M::new_zeroed();
    let max = positive_max(subs.iter().map(|s| s.scale));
    if max == 0.0 {
        return block;
    }
    let mut d = max / 15.0;
    let inverse = 1.0 / d;
    let (x, w) = (x.as_chunks::<8>().0, w.as_chunks::<8>().0);
    let mut sums = Sums::default();
    let mut words = [0; 4];
    for (k, sub) in subs.iter().enumerate() {
        let scale = odd_code(inverse * sub.scale, 7.0);
        words[k / 4] |= (scale as u16) << (3 * (k % 4));
        for g in 0..2 {
            let point = lattice.number(sub.codes[g]);
            block.qs[2 * k + g] = point as u8;
            block.qh[k] |= ((point >> 8) as u8 | u8::from(sub.down[g]) << 3) << (4 * g);
            let at = (&x[2 * k + g], &w[2 * k + g]);
            sums.add(sub.codes[g], ternary::values(sub.down[g]), 2.0 * scale + 1.0, at);
        }
    }
    d = sums.any_scale().unwrap_or(d);
    // The factor makes up for what the rounding of scales loses.
    let d = f32_to_f16(d * 1.1125);
    for (j, word) in words.into_iter().enumerate() {
        block.scales[j] = (word | (d >> (4 * j) & 15) << 12).to_le_bytes();
    }
    block
}
