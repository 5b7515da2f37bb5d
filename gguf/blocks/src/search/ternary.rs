//! What the searches of `IQ1_S` and `IQ1_M` share. Codes 0, 1 and 2 stand for -1, 0 and 1, all moved up or down by
//! [`DELTA`]: `x ≈ scale · value`. For a given scale the best codes ascend with the values, so sorted values are cut
//! at two places, and all pairs of places are tried.

use std::sync::LazyLock;

use super::lattice::{Lattice, Place, WIDTH};
use crate::grids::points;
use crate::simd::Simd;

/// How far values are moved.
pub(crate) const DELTA: f32 = 0.125;
/// The values of the codes, moved up.
pub(crate) const UP: [f32; 3] = [-1.0 + DELTA, DELTA, 1.0 + DELTA];
/// The values of the codes, moved down.
pub(crate) const DOWN: [f32; 3] = [-1.0 - DELTA, -DELTA, 1.0 - DELTA];

/// The points of both types.
pub(crate) static LATTICE: LazyLock<Lattice<8, 4>> = LazyLock::new(|| Lattice::new(&points::TERNARY_2048, 3));

/// Values of a point.
pub(crate) const N: usize = 8;

/// The moved values of the codes.
#[inline(always)]
pub(crate) fn values(down: bool) -> &'static [f32; 3] {
    if down { &DOWN } else { &UP }
}

/// The places of the values in ascending order, equal ones in their own order.
#[inline(always)]
#[expect(
    clippy::needless_bitwise_bool,
    reason = "conditions of lanes are computed without branches"
)]
pub(crate) fn order<const B: usize>(x: &[f32; B]) -> [u8; B] {
    let mut ranks = [0u32; B];
    for j in 0..B {
        for i in 0..B {
            let before = (x[j] < x[i]) | (x[j] == x[i]) & (j < i);
            ranks[i] += u32::from(before);
        }
    }
    let mut order = [0; B];
    for (i, rank) in ranks.into_iter().enumerate() {
        order[rank as usize % B] = i as u8;
    }
    order
}

/// The codes of values that are cut at two places of their order; `mirrored` for a negative scale.
#[inline(always)]
pub(crate) fn cut<const B: usize>(order: &[u8; B], at: (usize, usize), mirrored: bool) -> [u8; B] {
    let mut codes = [0; B];
    for (rank, &i) in order.iter().enumerate() {
        let code = u8::from(rank >= at.0) + u8::from(rank >= at.1);
        codes[usize::from(i) % B] = if mirrored { 2 - code } else { code };
    }
    codes
}

/// Eight numbers from a place on.
#[inline(always)]
pub(crate) fn lanes<const PLACES: usize>(v: &[f32; PLACES], start: usize) -> &[f32; WIDTH] {
    v[start..].first_chunk().expect("eight fit behind each place")
}

/// Packed codes of the points for the `codes` of `G` groups of eight at `scale`, and the scale, which is found again
/// if any of the codes were no point. Each group has its own `values` of codes.
#[inline(always)]
pub(crate) fn points<const G: usize, const B: usize>(
    simd: impl Simd,
    lattice: &Lattice<N, 4>,
    codes: &[u8; B],
    values: [&[f32; 3]; G],
    scale: f32,
    (x, w): (&[f32; B], &[f32; B]),
) -> ([u32; G], f32) {
    const { assert!(B == G * N) };
    let (codes, x, w) = (codes.as_chunks().0, x.as_chunks().0, w.as_chunks().0);
    let mut packed = [0; G];
    let mut any_off = false;
    for g in 0..G {
        let (point, off) = point(simd, lattice, &codes[g], values[g], scale, (&x[g], &w[g]));
        packed[g] = point;
        any_off |= off;
    }
    if !any_off {
        return (packed, scale);
    }
    let mut sums = Sums::default();
    for g in 0..G {
        sums.add(packed[g], values[g], 1.0, (&x[g], &w[g]));
    }
    (packed, sums.scale().unwrap_or(scale))
}

/// Packed codes of the point nearest to eight values at `scale`, and whether `codes` are no point themselves.
#[inline(always)]
fn point(
    simd: impl Simd,
    lattice: &Lattice<N, 4>,
    codes: &[u8; N],
    values: &[f32; 3],
    scale: f32,
    (x, w): (&[f32; N], &[f32; N]),
) -> (u32, bool) {
    let mut packed = 0;
    for (i, code) in codes.iter().enumerate() {
        packed |= u32::from(*code) << (2 * i);
    }
    let Place::Near(list) = lattice.place(packed) else {
        return (packed, false);
    };
    let mut scaled = [0.0; 4];
    for (scaled, value) in scaled.iter_mut().zip(values) {
        *scaled = scale * value;
    }
    let mut terms = [[0.0; 4]; N];
    for i in 0..N {
        for c in 0..4 {
            let diff = scaled[c] - x[i];
            terms[i][c] = w[i] * diff * diff;
        }
    }
    (u32::from(simd.nearest(&terms, list.eights())), true)
}

/// Sums of `w · q · x` and `w · q · q` that go over the points of several groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    qx: f32,
    q2: f32,
}

impl Sums {
    /// Adds eight values; their codes stand for `factor · value`.
    #[inline(always)]
    pub(crate) fn add(&mut self, codes: u32, values: &[f32; 3], factor: f32, (x, w): (&[f32; N], &[f32; N])) {
        for i in 0..N {
            // Packed codes are below 3.
            let q = values[Lattice::<N, 4>::code(codes, i).min(2)] * factor;
            self.qx += w[i] * q * x[i];
            self.q2 += w[i] * q * q;
        }
    }

    /// The best scale, if both sums are positive.
    #[inline(always)]
    pub(crate) fn scale(self) -> Option<f32> {
        (self.qx > 0.0 && self.q2 > 0.0).then(|| self.qx / self.q2)
    }

    /// The best scale, if any is.
    #[inline(always)]
    pub(crate) fn any_scale(self) -> Option<f32> {
        (self.q2 > 0.0).then(|| self.qx / self.q2)
    }
}

/// The best candidate so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Best {
    /// What to exceed.
    pub(crate) score: f32,
    /// The scale.
    pub(crate) scale: f32,
    /// Where the values are cut.
    pub(crate) at: (usize, usize),
    /// Which way each group is moved, numbered by the type.
    pub(crate) moves: usize,
}

impl Best {
    /// No candidate yet: any is better.
    pub(crate) const NONE: Self = Self {
        score: -f32::MAX,
        scale: 0.0,
        at: (0, 0),
        moves: usize::MAX,
    };

    /// Takes a candidate if it is better.
    #[inline(always)]
    pub(crate) fn offer(&mut self, qx: f32, q2: f32, at: (usize, usize), moves: usize) {
        if q2 > 0.0 && qx * qx > self.score * q2 {
            self.scale = qx / q2;
            self.score = self.scale * qx;
            self.at = at;
            self.moves = moves;
        }
    }
}

/// Candidates side by side that cut at one first place and at eight second places, moved up (0) or down (1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts<'a> {
    /// Sums of `w · x` and of weights before the first place.
    pub(crate) x: f32,
    pub(crate) w: f32,
    /// What the values before the first place add to the sums of `w · q · x` and of `w · q · q`.
    pub(crate) front_x: [f32; 2],
    pub(crate) front_w: [f32; 2],
    /// Sums of `w · x` and of weights before the second place.
    pub(crate) next_x: &'a [f32; 8],
    pub(crate) next_w: &'a [f32; 8],
    /// What the values behind the second place add to the sums.
    pub(crate) behind_x: [&'a [f32; 8]; 2],
    pub(crate) behind_w: [&'a [f32; 8]; 2],
}

impl Cuts<'_> {
    /// The sums of `w · q · x` and of `w · q · q` of a candidate.
    #[inline(always)]
    pub(crate) fn sums(&self, j: usize, m: usize) -> (f32, f32) {
        let between_x = (self.next_x[j] - self.x) * DELTA;
        let between_w = (self.next_w[j] - self.w) * DELTA * DELTA;
        let between_x = if m == 0 { between_x } else { -between_x };
        (
            self.front_x[m] + between_x + self.behind_x[m][j],
            self.front_w[m] + between_w + self.behind_w[m][j],
        )
    }

    /// The candidates with a higher score: bit `2 · j + m`.
    pub(crate) fn plain_better(&self, score: f32) -> u32 {
        let mut better = 0;
        for j in 0..8 {
            for m in 0..2 {
                let (qx, q2) = self.sums(j, m);
                better |= u32::from(qx * qx > score * q2) << (2 * j + m);
            }
        }
        better
    }
}
