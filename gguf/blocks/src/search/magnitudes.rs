//! The search of the lattice types with signs, `IQ2_*` and `IQ3_*`: magnitudes become points of a lattice times a
//! scale, `|x| ≈ scale · coordinate`.
//!
//! A sub-block tries many starting scales. These run side by side in lanes: the codes of each, the nearest points
//! where codes are no point, and the sums that decide. Coordinates are the odd numbers from 1.

use super::lattice::{Group, Lattice, Place, Tries};
use super::lattice::{Lane, WIDTH};
use super::{batch, odd_code, positive, positive_max, sum_of_squares, transpose};
use crate::simd::{Lanes, Simd};

/// Lattice points of a sub-block at most.
const GROUPS: usize = 8;
/// Values that signs are stored for together.
const SIGNS: usize = 8;

/// How the types differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The weights of values: of importance by their squares and the mean of all squares, times this.
    pub(crate) mean: f32,
    /// The weights without importance.
    pub(crate) plain: PlainWeights,
    /// Whether only seven of eight signs are stored, so that the number of minus signs must be even.
    pub(crate) even_signs: bool,
    /// A sub-block whose largest magnitude is below counts as zero.
    pub(crate) tiny: f32,
    /// Whether the largest coordinate is fitted to a scale from [`positive`], not to the largest magnitude.
    pub(crate) fitted: bool,
    /// Starting scales to either side of the plain one.
    pub(crate) side: i32,
    /// Distance of starting scales, in coordinates of the largest magnitude.
    pub(crate) step: f32,
    /// Which points are chosen again for the best scale.
    pub(crate) again: Again,
}

/// The weight of a value `x` without importance; `mean` is the mean of all squares by [`Rules::mean`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlainWeights {
    /// As if all columns had importance 1, for types that are not meant to be encoded without.
    Neutral,
    /// `x²`.
    Squares,
    /// `mean / 4 + x²`.
    QuarterMean,
}

/// Which points of a sub-block are chosen again for the scale that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Those whose codes were no point.
    OffPoints,
    /// All, if the codes of any were no point, or if no starting scale was any good.
    AllIfAnyOff,
    /// All.
    All,
}

/// A sub-block as points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sub {
    /// The values are so small that nothing was searched.
    pub(crate) empty: bool,
    /// The numbers of the points; the rest of them is unused.
    pub(crate) points: [u16; GROUPS],
    /// The signs of eight values each, set for minus.
    pub(crate) signs: [u8; 4],
}

/// A super-block as sub-blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Super<const SUBS: usize> {
    /// The unit of the scales; 0 if all scales are.
    pub(crate) d: f32,
    /// The scales: `2 · scale + 1` units.
    pub(crate) scales: [u8; SUBS],
    /// The sub-blocks.
    pub(crate) subs: [Sub; SUBS],
}

const EMPTY: Sub = Sub {
    empty: true,
    points: [0; GROUPS],
    signs: [0; 4],
};

/// Encodes a super-block as `SUBS` sub-blocks of `B` values with points of `N` values and codes below `C`. `V` eights
/// hold all the starting scales.
#[inline(always)]
pub(crate) fn encode<const SUBS: usize, const B: usize, const N: usize, const C: usize, const V: usize>(
    simd: impl Simd,
    lattice: &Lattice<N, C>,
    rules: &Rules,
    x: &[f32; 256],
    importance: Option<&[f32; 256]>,
) -> Super<SUBS> {
    let mean = rules.mean * sum_of_squares(x) / 256.0;
    let mut scales = [0.0; SUBS];
    let mut out = Super {
        d: 0.0,
        scales: [0; SUBS],
        subs: [EMPTY; SUBS],
    };
    let mut parts = [Part::<B>::EMPTY; SUBS];
    for (k, (part, x)) in parts.iter_mut().zip(x.as_chunks::<B>().0).enumerate() {
        let importance = importance.map(|w| &w.as_chunks::<B>().0[k]);
        part.magnitudes = *x;
        weights(rules, mean, x, importance, &mut part.weights);
        part.take_signs(rules.even_signs);
    }
    if rules.fitted {
        fit(simd, Lattice::<N, C>::LEVELS as f32 + 1.0, &mut parts);
    }
    for (k, part) in parts.iter().enumerate() {
        (out.subs[k], scales[k]) = sub_block::<B, N, C, V>(simd, lattice, rules, part);
    }
    let max = positive_max(scales);
    if max == 0.0 {
        return out;
    }
    out.d = max / 31.0;
    let inverse = 1.0 / out.d;
    for (out, s) in out.scales.iter_mut().zip(scales) {
        *out = odd_code(inverse * s, 15.0) as u8;
    }
    out
}

#[inline(always)]
fn weights<const B: usize>(
    rules: &Rules,
    mean: f32,
    x: &[f32; B],
    importance: Option<&[f32; B]>,
    w: &mut [f32; B],
) {
    match (importance, rules.plain) {
        (Some(importance), _) => {
            for ((w, x), importance) in w.iter_mut().zip(x).zip(importance) {
                *w = importance * (mean + x * x).sqrt();
            }
        }
        (None, PlainWeights::Neutral) => {
            for (w, x) in w.iter_mut().zip(x) {
                *w = (mean + x * x).sqrt();
            }
        }
        (None, PlainWeights::Squares) => {
            for (w, x) in w.iter_mut().zip(x) {
                *w = x * x;
            }
        }
        (None, PlainWeights::QuarterMean) => {
            for (w, x) in w.iter_mut().zip(x) {
                *w = 0.25 * mean + x * x;
            }
        }
    }
}

/// Takes the signs off eight values: a bit for each minus. If these are to be even in number and are not, the value
/// that matters least gets the other sign, and so may be left with a minus.
#[inline(always)]
fn take_signs(even: bool, x: &mut [f32; SIGNS], w: &[f32; SIGNS]) -> u8 {
    let mut signs = 0;
    let mut cost = [0.0; SIGNS];
    for j in 0..SIGNS {
        // Only what compares as less than zero: minus zero does, too, by its sign, like plus zero.
        signs |= u8::from(x[j] < 0.0) << j;
        cost[j] = w[j] * x[j] * x[j];
        x[j] = x[j].abs();
    }
    if even && signs.count_ones() % 2 == 1 {
        let mut least = 0;
        for j in 1..SIGNS {
            if cost[j] < cost[least] {
                least = j;
            }
        }
        x[least] = -x[least];
        signs ^= 1 << least;
    }
    signs
}

/// What the search of a sub-block starts from.
#[derive(Clone, Copy)]
struct Part<const B: usize> {
    /// Values without signs; one may be left with a minus.
    magnitudes: [f32; B],
    signs: [u8; 4],
    weights: [f32; B],
    /// The scale that fits whole numbers up to one more than the largest code, where that is where to start.
    fitted: f32,
}

impl<const B: usize> Part<B> {
    const EMPTY: Self = Self {
        magnitudes: [0.0; B],
        signs: [0; 4],
        weights: [0.0; B],
        fitted: 0.0,
    };

    #[inline(always)]
    fn take_signs(&mut self, even: bool) {
        let eights = self.magnitudes.as_chunks_mut::<SIGNS>().0.iter_mut();
        let weights = self.weights.as_chunks::<SIGNS>().0;
        for ((x, w), signs) in eights.zip(weights).zip(&mut self.signs) {
            *signs = take_signs(even, x, w);
        }
    }
}

/// Fits the scales of all sub-blocks side by side.
#[inline(always)]
fn fit<S: Simd, const B: usize, const SUBS: usize>(simd: S, n_max: f32, parts: &mut [Part<B>; SUBS]) {
    let x = transpose(simd, batch(parts, 0).map(|p| &p.magnitudes));
    let w = transpose(simd, batch(parts, 0).map(|p| &p.weights));
    let (scales, _) = positive(simd, n_max, &x, &w);
    for (part, scale) in parts.iter_mut().zip(scales.to_array()) {
        part.fitted = scale;
    }
}

/// The points of a sub-block, and their scale.
#[inline(always)]
fn sub_block<const B: usize, const N: usize, const C: usize, const V: usize>(
    simd: impl Simd,
    lattice: &Lattice<N, C>,
    rules: &Rules,
    part: &Part<B>,
) -> (Sub, f32) {
    let Part {
        magnitudes: x,
        weights: w,
        signs,
        fitted,
    } = part;
    let mut signs = *signs;
    let max = positive_max(*x);
    if max < rules.tiny || max == 0.0 {
        return (EMPTY, 0.0);
    }
    let levels = Lattice::<N, C>::LEVELS as f32;
    let start = if rules.fitted {
        if fitted * levels <= 0.0 {
            return (EMPTY, 0.0);
        }
        (fitted * levels, *fitted)
    } else {
        (max, max / (2.0 * levels - 1.0))
    };
    let mut search = Search::<B, N, C>::new(lattice, x, w);
    search.try_scales::<V>(simd, rules, start);
    search.choose_again(simd, rules.again);
    let mut scale = search.scale;
    if scale < 0.0 {
        scale = -scale;
        signs = signs.map(|s| !s);
    }
    let sub = Sub {
        empty: false,
        points: search.chosen.map(|codes| lattice.number(codes)),
        signs,
    };
    (sub, scale)
}

/// The search for the scale and the points of one sub-block.
struct Search<'a, const B: usize, const N: usize, const C: usize> {
    lattice: &'a Lattice<N, C>,
    x: &'a [f32; B],
    w: &'a [f32; B],
    /// Square roots of the weights.
    root: [f32; B],
    scale: f32,
    /// Packed codes of the points of each group.
    chosen: [u32; GROUPS],
    /// The groups whose codes were no point.
    off: u32,
}

/// All starting scales: points of each group, groups that were no point, and sums.
struct Tried<const V: usize> {
    points: [[[u32; WIDTH]; GROUPS]; V],
    off: [[u32; GROUPS]; V],
    sums: [[Lane; 2]; V],
}

impl<'a, const B: usize, const N: usize, const C: usize> Search<'a, B, N, C> {
    #[inline(always)]
    fn new(lattice: &'a Lattice<N, C>, x: &'a [f32; B], w: &'a [f32; B]) -> Self {
        let mut root = *w;
        for w in &mut root {
            *w = w.sqrt();
        }
        Self {
            lattice,
            x,
            w,
            root,
            scale: 0.0,
            chosen: [0; GROUPS],
            off: 0,
        }
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_, N, C> {
        Group {
            lattice: self.lattice,
            x: &self.x.as_chunks().0[g],
            w: &self.w.as_chunks().0[g],
            root: &self.root.as_chunks().0[g],
        }
    }

    /// Takes the best of the starting scales, which lie around the one that gives `max` the largest coordinate;
    /// `scale` stays if none is any good.
    #[inline(always)]
    fn try_scales<const V: usize>(&mut self, simd: impl Simd, rules: &Rules, (max, scale): (f32, f32)) {
        self.scale = scale;
        self.off = if rules.again == Again::AllIfAnyOff {
            u32::MAX
        } else {
            0
        };
        let count = 2 * rules.side as usize + 1;
        let tried = self.all_tries::<V>(simd, rules, max);
        let mut best = 0.0;
        let mut found = None;
        for t in 0..count {
            let [qx, q2] = tried.sums[t / WIDTH].map(|sums| sums[t % WIDTH]);
            if q2 > 0.0 && qx * qx > best * q2 {
                self.scale = qx / q2;
                best = self.scale * qx;
                found = Some((t / WIDTH, t % WIDTH));
            }
        }
        if let Some((v, j)) = found {
            self.off = 0;
            for g in 0..B / N {
                self.chosen[g] = tried.points[v][g][j];
                self.off |= (tried.off[v][g] >> j & 1) << g;
            }
        }
    }

    #[inline(always)]
    fn all_tries<const V: usize>(&self, simd: impl Simd, rules: &Rules, max: f32) -> Tried<V> {
        let largest = (2 * Lattice::<N, C>::LEVELS - 1) as f32;
        let mut tried = Tried {
            points: [[[0; WIDTH]; GROUPS]; V],
            off: [[0; GROUPS]; V],
            sums: [[[0.0; WIDTH]; 2]; V],
        };
        let mut tries = Tries::NONE;
        let mut step = -rules.side;
        for v in 0..V {
            tries.live = 0;
            for j in 0..WIDTH {
                tries.factor[j] = (largest + step as f32 * rules.step) / max;
                tries.scale[j] = 1.0 / tries.factor[j];
                tries.live |= u32::from(step <= rules.side) << j;
                step += 1;
            }
            for g in 0..B / N {
                let group = self.group(g);
                simd.points(&group, &mut tries);
                simd.point_sums(&group, &tries.points, &mut tried.sums[v]);
                tried.points[v][g] = tries.points;
                tried.off[v][g] = tries.off;
            }
        }
        tried
    }

    /// Chooses points again for the scale that was found, and then the scale for them.
    #[inline(always)]
    fn choose_again(&mut self, simd: impl Simd, again: Again) {
        let groups = match again {
            Again::OffPoints => self.off,
            Again::AllIfAnyOff if self.off == 0 => 0,
            Again::AllIfAnyOff | Again::All => u32::MAX,
        };
        if groups == 0 || self.scale <= 0.0 {
            return;
        }
        let factor = 1.0 / self.scale;
        let (mut sum_qx, mut sum_q2) = (0.0, 0.0);
        for g in 0..B / N {
            let group = self.group(g);
            let mut point = self.chosen[g];
            if groups >> g & 1 == 1 {
                point = group.codes(factor);
                if let Place::Near(list) = self.lattice.place(point) {
                    let terms = group.terms(self.scale);
                    point = u32::from(simd.nearest(&terms, list.eights()));
                }
            }
            for i in 0..N {
                let q = Lattice::<N, C>::coordinate(point, i);
                sum_qx += group.w[i] * group.x[i] * q;
                sum_q2 += group.w[i] * q * q;
            }
            self.chosen[g] = point;
        }
        if sum_q2 > 0.0 {
            self.scale = sum_qx / sum_q2;
        }
    }
}

/// The signs of 32 values as the types with even numbers of them store them, seven bits each.
#[inline(always)]
pub(crate) fn seven_signs(signs: [u8; 4]) -> u32 {
    signs
        .into_iter()
        .rev()
        .fold(0, |word, s| word << 7 | u32::from(s & 127))
}
