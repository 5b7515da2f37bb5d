//! Codes with a scale and a minimum: `x ≈ scale · code - min`.

use super::EXACT;
use crate::simd::{LANES, Lanes, Simd};

/// The starting scales of a search: `(first + step · i + n_max) / (max - min)` for `i` in `0..=steps`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// The largest code.
    pub(crate) n_max: f32,
    /// Where the grid starts.
    pub(crate) first: f32,
    /// Distance of neighbours.
    pub(crate) step: f32,
    /// Number of the last starting scale.
    pub(crate) steps: usize,
}

/// What a search found for each lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affine {
    /// The scales.
    pub(crate) scale: [f32; LANES],
    /// What to subtract; not negative for finite input.
    pub(crate) min: [f32; LANES],
    n_max: f32,
    /// What gives the codes: the factor, the offset, and a bit for each lane whose quotients are limited before they
    /// are rounded.
    factor: [f32; LANES],
    offset: [f32; LANES],
    clip: u32,
    /// A bit for each lane without spread, whose codes are 0.
    flat: u32,
}

impl Affine {
    /// Sixteen codes of lane `j`, `0..=n_max`, as whole numbers.
    #[inline(always)]
    fn codes<S: Simd>(&self, simd: S, j: usize, x: &[f32; LANES]) -> S::Lanes {
        let (zero, n_max) = (simd.splat(0.0), simd.splat(self.n_max));
        if self.flat >> j & 1 == 1 {
            return zero;
        }
        let v = simd.splat(self.factor[j]) * (simd.load(x) - simd.splat(self.offset[j]));
        if self.clip >> j & 1 == 1 {
            v.clamp(zero, n_max).nint()
        } else {
            v.nint().clamp(zero, n_max)
        }
    }

    /// The codes of lane `j`, whose values are `x`.
    #[inline(always)]
    pub(crate) fn codes16<S: Simd>(&self, simd: S, j: usize, x: &[f32; 16]) -> [u8; 16] {
        let codes = self.codes(simd, j, x);
        *simd.low_bytes([codes; 2]).first_chunk().expect("16 of 32 bytes")
    }

    /// The codes of lane `j`, whose values are `x`.
    #[inline(always)]
    pub(crate) fn codes32<S: Simd>(&self, simd: S, j: usize, x: &[f32; 32]) -> [u8; 32] {
        let x = x.as_chunks::<LANES>().0;
        simd.low_bytes([self.codes(simd, j, &x[0]), self.codes(simd, j, &x[1])])
    }
}

/// The search of encoders without importance. `ABS`: the error is weighted magnitudes instead of squares.
#[inline(always)]
pub(crate) fn affine_plain<S: Simd, const N: usize, const ABS: bool>(
    simd: S,
    x: &[S::Lanes; N],
    w: &[S::Lanes; N],
    grid: &Grid,
) -> Affine {
    Search::start::<N, ABS>(simd, x, w, grid).run::<N, ABS, false>(x, w, grid)
}

/// The search of encoders with importance: differs from [`affine_plain`] in codes of infinite or undefined
/// quotients only.
#[inline(always)]
pub(crate) fn affine_weighted<S: Simd, const N: usize>(
    simd: S,
    x: &[S::Lanes; N],
    w: &[S::Lanes; N],
    grid: &Grid,
) -> Affine {
    Search::start::<N, false>(simd, x, w, grid).run::<N, false, true>(x, w, grid)
}

/// The best solution of each lane so far.
struct Search<S: Simd> {
    simd: S,
    max: S::Lanes,
    /// The smallest value, or 0.
    lowest: S::Lanes,
    sum_w: S::Lanes,
    sum_x: S::Lanes,
    min: S::Lanes,
    scale: S::Lanes,
    best: S::Lanes,
    factor: S::Lanes,
    offset: S::Lanes,
    /// A bit for each lane that has a better solution than the plain scale.
    moved: u32,
    /// No spread: nothing to search.
    flat: <S::Lanes as Lanes>::Mask,
}

impl<S: Simd> Search<S> {
    /// The range, the constant sums and the error of the plain scale.
    #[inline(always)]
    fn start<const N: usize, const ABS: bool>(
        simd: S,
        x: &[S::Lanes; N],
        w: &[S::Lanes; N],
        grid: &Grid,
    ) -> Self {
        let (zero, n_max) = (simd.splat(0.0), simd.splat(grid.n_max));
        let (mut max, mut min) = (x[0], x[0]);
        let mut sum_w = w[0];
        let mut sum_x = w[0] * x[0];
        for i in 1..N {
            min = x[i].min(min);
            max = x[i].max(max);
            sum_w = sum_w + w[i];
            sum_x = sum_x + w[i] * x[i];
        }
        let min = zero.min(min);
        let factor = n_max / (max - min);
        let scale = simd.splat(1.0) / factor;
        let mut best = zero;
        for i in 0..N {
            let l = (factor * (x[i] - min)).nint().clamp(zero, n_max);
            best = best + w[i] * penalty::<S, ABS>(scale * l + min - x[i]);
        }
        Self {
            simd,
            max,
            lowest: min,
            sum_w,
            sum_x,
            min,
            scale,
            best,
            factor,
            offset: min,
            moved: 0,
            flat: min.ge(max),
        }
    }

    /// Tries each starting scale and keeps what lowers the error.
    #[inline(always)]
    fn run<const N: usize, const ABS: bool, const CLIP: bool>(
        mut self,
        x: &[S::Lanes; N],
        w: &[S::Lanes; N],
        grid: &Grid,
    ) -> Affine {
        let simd = self.simd;
        let n_max = simd.splat(grid.n_max);
        let mut codes = [n_max; N];
        for step in 0..=grid.steps {
            let numerator = grid.first + grid.step * step as f32 + grid.n_max;
            let factor = simd.splat(numerator) / (self.max - self.min);
            let sums = if self.is_small(factor) {
                self.choose::<N, CLIP, true>(x, w, factor, n_max, &mut codes)
            } else {
                self.choose::<N, CLIP, false>(x, w, factor, n_max, &mut codes)
            };
            let (scale, min) = self.fit(&sums);
            let mut error = simd.splat(0.0);
            for i in 0..N {
                error = error + w[i] * penalty::<S, ABS>(scale * codes[i] + min - x[i]);
            }
            self.accept(error, factor, scale, min);
        }
        let flat = S::Lanes::bits(self.flat);
        Affine {
            scale: S::Lanes::select(self.flat, simd.splat(0.0), self.scale).to_array(),
            min: self.min.neg().to_array(),
            n_max: grid.n_max,
            factor: self.factor.to_array(),
            offset: self.offset.to_array(),
            clip: if CLIP { self.moved } else { 0 },
            flat,
        }
    }

    /// Whether all quotients for a factor are in the range where limiting and rounding can change places.
    #[inline(always)]
    fn is_small(&self, factor: S::Lanes) -> bool {
        let limit = self.simd.splat(EXACT);
        let low = limit.ge((factor * (self.lowest - self.min)).abs());
        let high = limit.ge((factor * (self.max - self.min)).abs());
        S::Lanes::all(low & high | self.flat)
    }

    /// Fills in the codes for a factor. `SMALL`: [`Self::is_small`] holds.
    #[inline(always)]
    fn choose<const N: usize, const CLIP: bool, const SMALL: bool>(
        &self,
        x: &[S::Lanes; N],
        w: &[S::Lanes; N],
        factor: S::Lanes,
        n_max: S::Lanes,
        codes: &mut [S::Lanes; N],
    ) -> Sums<S> {
        let zero = self.simd.splat(0.0);
        let (mut l1, mut l2, mut xl) = (zero, zero, zero);
        for i in 0..N {
            let v = factor * (x[i] - self.min);
            let l = if SMALL {
                v.clamp(zero, n_max).round()
            } else if CLIP {
                v.clamp(zero, n_max).nint()
            } else {
                v.nint().clamp(zero, n_max)
            };
            codes[i] = l;
            let wl = w[i] * l;
            l1 = l1 + wl;
            l2 = l2 + wl * l;
            xl = xl + wl * x[i];
        }
        Sums { l: l1, l2, xl }
    }

    /// The scale and the minimum (at most 0) that fit codes best; NaN for a scale that does not exist.
    #[inline(always)]
    fn fit(&self, &Sums { l, l2, xl }: &Sums<S>) -> (S::Lanes, S::Lanes) {
        let zero = self.simd.splat(0.0);
        let det = self.sum_w * l2 - l * l;
        let m = (l2 * self.sum_x - l * xl) / det;
        let positive = m.gt(zero);
        // Either division is selected before it is made, so that there is one.
        let s = self.sum_w * xl - self.sum_x * l;
        let s = S::Lanes::select(positive, xl, s) / S::Lanes::select(positive, l2, det);
        let scale = S::Lanes::select(det.gt(zero), s, self.simd.splat(f32::NAN));
        (scale, S::Lanes::select(positive, zero, m))
    }

    /// Takes over what has a lower error than before. A scale of NaN has an error of NaN, which is not lower.
    #[inline(always)]
    fn accept(&mut self, error: S::Lanes, factor: S::Lanes, scale: S::Lanes, min: S::Lanes) {
        let lower = self.best.gt(error);
        self.factor = S::Lanes::select(lower, factor, self.factor);
        self.offset = S::Lanes::select(lower, self.min, self.offset);
        self.best = S::Lanes::select(lower, error, self.best);
        self.scale = S::Lanes::select(lower, scale, self.scale);
        self.min = S::Lanes::select(lower, min, self.min);
        self.moved |= S::Lanes::bits(lower);
    }
}

/// Weighted sums of codes, of their squares, and of their products with the values.
struct Sums<S: Simd> {
    l: S::Lanes,
    l2: S::Lanes,
    xl: S::Lanes,
}

#[inline(always)]
fn penalty<S: Simd, const ABS: bool>(diff: S::Lanes) -> S::Lanes {
    if ABS { diff.abs() } else { diff * diff }
}
