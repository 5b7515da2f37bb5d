//! The encoder of `IQ1_S`.

use zerocopy::FromZeros;

use super::IQ1_S;
use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::rows;
use crate::search::lattice::Lattice;
use crate::search::lattice::WIDTH;
use crate::search::ternary::{self, Best, Cuts, DOWN, UP, lanes};
use crate::search::{odd_code, positive_max, signed_max, sum_of_squares};
use crate::simd::{Encode, Simd};

/// Values of a sub-block.
const B: usize = 32;
/// Places where `B` sorted values can be cut, and room for eight from each.
const PLACES: usize = B + WIDTH;

/// A sub-block: its scale, the direction of the move, packed codes of its points.
#[derive(Clone, Copy, Debug, Default)]
struct Sub {
    scale: f32,
    down: bool,
    codes: [u32; 4],
}

impl Encode for IQ1_S {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let lattice = &*ternary::LATTICE;
        for (x, importance, block) in rows::weighted_pairs::<IQ1_S, 256>(src, importance, out) {
            let mean = 2.0 * sum_of_squares(x) / 256.0;
            let mut subs = [Sub::default(); 8];
            for (k, (x, sub)) in x.as_chunks::<B>().0.iter().zip(&mut subs).enumerate() {
                let mut w = importance.map_or([1.0; B], |w| w.as_chunks::<B>().0[k]);
                for (w, x) in w.iter_mut().zip(x) {
                    *w *= (mean + x * x).sqrt();
                }
                *sub = search(simd, lattice, x, &w);
            }
            *block = pack(lattice, &subs);
        }
    }
}

#[inline(always)]
fn search(simd: impl Simd, lattice: &Lattice<8, 4>, x: &[f32; B], w: &[f32; B]) -> Sub {
    if signed_max(x).abs() < 1e-12 {
        return Sub::default();
    }
    let order = ternary::order(x);
    let best = best_cut(simd, &order, x, w);
    if best.moves > 1 {
        return Sub::default();
    }
    let mirrored = best.scale < 0.0;
    let down = (best.moves == 1) != mirrored;
    let codes = ternary::cut(&order, best.at, mirrored);
    let values = [ternary::values(down); 4];
    let (codes, scale) = ternary::points(simd, lattice, &codes, values, best.scale.abs(), (x, w));
    Sub { scale, down, codes }
}

/// Sums over the sorted values before each place, and what the values behind it add to a candidate's sums.
struct Prefix {
    x: [f32; PLACES],
    w: [f32; PLACES],
    behind_x: [[f32; PLACES]; 2],
    behind_w: [[f32; PLACES]; 2],
}

impl Prefix {
    #[inline(always)]
    fn new(order: &[u8; B], x: &[f32; B], w: &[f32; B]) -> Self {
        // Places beyond the last are no numbers, so nothing is better there.
        let mut prefix = Self {
            x: [f32::NAN; PLACES],
            w: [f32::NAN; PLACES],
            behind_x: [[0.0; PLACES]; 2],
            behind_w: [[0.0; PLACES]; 2],
        };
        (prefix.x[0], prefix.w[0]) = (0.0, 0.0);
        for (j, i) in order.iter().enumerate() {
            let i = usize::from(*i) % B;
            prefix.x[j + 1] = prefix.x[j] + w[i] * x[i];
            prefix.w[j + 1] = prefix.w[j] + w[i];
        }
        for (m, values) in [UP, DOWN].iter().enumerate() {
            let v = values[2];
            for j in 0..PLACES {
                prefix.behind_x[m][j] = (prefix.x[B] - prefix.x[j]) * v;
                prefix.behind_w[m][j] = (prefix.w[B] - prefix.w[j]) * v * v;
            }
        }
        prefix
    }
}

/// Candidates with one first place and eight second places.
#[inline(always)]
fn cuts(prefix: &Prefix, first: usize, start: usize) -> Cuts<'_> {
    let (x, w) = (prefix.x[first], prefix.w[first]);
    Cuts {
        x,
        w,
        front_x: [x * UP[0], x * DOWN[0]],
        front_w: [w * UP[0] * UP[0], w * DOWN[0] * DOWN[0]],
        next_x: lanes(&prefix.x, start),
        next_w: lanes(&prefix.w, start),
        behind_x: [
            lanes(&prefix.behind_x[0], start),
            lanes(&prefix.behind_x[1], start),
        ],
        behind_w: [
            lanes(&prefix.behind_w[0], start),
            lanes(&prefix.behind_w[1], start),
        ],
    }
}

/// A score that the best candidate certainly exceeds, from a few that are likely to be good; none for sums near the
/// ends of the range of f32.
///
/// Starting from it leaves the result as it is. Each candidate's sum of squares lies within 1/64 and 1.27 of the sum
/// of weights, so comparisons are right to a relative error well below 1e-6. Compare a search that starts from here
/// with one that starts from nothing: once a candidate exceeds the scores of both by more than 1e-6, both take it
/// and are the same from then on. While none does, the larger score of the two grows by 1e-6 at most for each of
/// the 1122 candidates, so by less than the one percent that is left to the best of the few.
#[inline(always)]
fn floor(prefix: &Prefix) -> f32 {
    /// A first place and the least of eight second ones that cut normally distributed values well.
    const LIKELY: (usize, usize) = (9, 19);
    let cuts = cuts(prefix, LIKELY.0, LIKELY.1);
    let mut score = 0.0;
    for j in 0..WIDTH {
        for m in 0..2 {
            let (qx, q2) = cuts.sums(j, m);
            let s = qx * qx / q2;
            score = if s > score { s } else { score };
        }
    }
    let safe = 1e-15..1e15;
    if safe.contains(&score) && safe.contains(&prefix.w[B]) {
        score * 0.99
    } else {
        Best::NONE.score
    }
}

/// The best of all pairs of places, moved up (0) or down (1).
#[inline(always)]
fn best_cut(simd: impl Simd, order: &[u8; B], x: &[f32; B], w: &[f32; B]) -> Best {
    let prefix = Prefix::new(order, x, w);
    let mut best = Best {
        score: floor(&prefix),
        ..Best::NONE
    };
    for first in 0..=B {
        for start in (first..=B).step_by(WIDTH) {
            let cuts = cuts(&prefix, first, start);
            let mut better = simd.better_cuts(&cuts, best.score);
            while better != 0 {
                let lane = better.trailing_zeros() as usize;
                better &= better - 1;
                let (j, m) = (lane / 2, lane % 2);
                let (qx, q2) = cuts.sums(j, m);
                best.offer(qx, q2, (first, start + j), m);
            }
        }
    }
    best
}

#[inline(always)]
fn pack(lattice: &Lattice<8, 4>, subs: &[Sub; 8]) -> IQ1_S {
    let mut block = IQ1_S::new_zeroed();
    for (k, sub) in subs.iter().enumerate() {
        let mut high = 0;
        for (g, codes) in sub.codes.into_iter().enumerate() {
            let point = lattice.number(codes);
            block.qs[4 * k + g] = point as u8;
            high |= point >> 8 << (3 * g);
        }
        block.qh[k] = high.to_le_bytes();
    }
    let max = positive_max(subs.iter().map(|s| s.scale));
    if max == 0.0 {
        return block;
    }
    let d = max / 15.0;
    // The factor makes up for what the rounding of scales loses.
    block.d = f32_to_f16(d * 1.125).to_le_bytes();
    let inverse = 1.0 / d;
    for (qh, sub) in block.qh.iter_mut().zip(subs) {
        let scale = odd_code(inverse * sub.scale, 7.0) as u8;
        qh[1] |= scale << 4 | u8::from(sub.down) << 7;
    }
    block
}
