//! Codes with a scale and a minimum: `x ≈ scale · code - min`.

use super::{LANES, Lane, clamp, nint};

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
pub(crate) struct Affine<const N: usize> {
    /// The scales.
    pub(crate) scale: Lane,
    /// What to subtract; not negative for finite input.
    pub(crate) min: Lane,
    /// The codes, `0..=n_max`, for each lane.
    pub(crate) codes: [[u8; N]; LANES],
}

/// The search of encoders without importance. `ABS`: the error is weighted magnitudes instead of squares.
pub(crate) fn affine_plain<const N: usize, const ABS: bool>(
    x: &[Lane; N],
    w: &[Lane; N],
    grid: &Grid,
) -> Affine<N> {
    Search::<N>::start::<ABS>(x, w, grid).run::<ABS, false>(x, w, grid)
}

/// The search of encoders with importance: differs from [`affine_plain`] in codes of infinite or undefined
/// quotients only.
pub(crate) fn affine_weighted<const N: usize>(x: &[Lane; N], w: &[Lane; N], grid: &Grid) -> Affine<N> {
    Search::<N>::start::<false>(x, w, grid).run::<false, true>(x, w, grid)
}

/// The best solution of each lane so far.
struct Search<const N: usize> {
    max: Lane,
    min: Lane,
    scale: Lane,
    best: Lane,
    sum_w: Lane,
    sum_x: Lane,
    /// What gives the codes of the best solution: the factor, the offset, and whether it is still the first one.
    code_factor: Lane,
    code_min: Lane,
    first: [u32; LANES],
    /// No spread: nothing to search.
    flat: [bool; LANES],
}

impl<const N: usize> Search<N> {
    /// The range, the constant sums and the error of the plain scale.
    #[inline]
    fn start<const ABS: bool>(x: &[Lane; N], w: &[Lane; N], grid: &Grid) -> Self {
        let mut max = x[0];
        let mut min = x[0];
        let mut sum_w = w[0];
        let mut sum_x = [0.0; LANES];
        for j in 0..LANES {
            sum_x[j] = w[0][j] * x[0][j];
        }
        for (x, w) in x.iter().zip(w).skip(1) {
            for j in 0..LANES {
                min[j] = if x[j] < min[j] { x[j] } else { min[j] };
                max[j] = if x[j] > max[j] { x[j] } else { max[j] };
                sum_w[j] += w[j];
                sum_x[j] += w[j] * x[j];
            }
        }
        let mut flat = [false; LANES];
        let mut factor = [0.0; LANES];
        let mut scale = [0.0; LANES];
        for j in 0..LANES {
            min[j] = if min[j] > 0.0 { 0.0 } else { min[j] };
            flat[j] = max[j] <= min[j];
            factor[j] = grid.n_max / (max[j] - min[j]);
            scale[j] = 1.0 / factor[j];
        }
        let mut best = [0.0; LANES];
        for (x, w) in x.iter().zip(w) {
            for j in 0..LANES {
                let l = clamp(nint(factor[j] * (x[j] - min[j])), 0.0, grid.n_max);
                best[j] += w[j] * penalty::<ABS>(scale[j] * l + min[j] - x[j]);
            }
        }
        let (code_factor, code_min) = (factor, min);
        Self {
            max,
            min,
            scale,
            best,
            sum_w,
            sum_x,
            code_factor,
            code_min,
            first: [1; LANES],
            flat,
        }
    }

    /// Tries each starting scale and keeps what lowers the error.
    #[inline]
    fn run<const ABS: bool, const CLIP: bool>(
        mut self,
        x: &[Lane; N],
        w: &[Lane; N],
        grid: &Grid,
    ) -> Affine<N> {
        let mut codes = [[0.0; LANES]; N];
        for step in 0..=grid.steps {
            let numerator = grid.first + grid.step * step as f32 + grid.n_max;
            let mut factor = [0.0; LANES];
            for j in 0..LANES {
                factor[j] = numerator / (self.max[j] - self.min[j]);
            }
            let sums = choose::<N, CLIP>(x, w, &factor, &self.min, grid.n_max, &mut codes);
            let (scale, min) = self.fit(&sums);
            let error = errors::<N, ABS>(x, w, &codes, &scale, &min);
            self.accept(&error, &factor, &scale, &min);
        }
        self.finish::<CLIP>(x, grid.n_max)
    }

    /// The scale and the minimum (at most 0) that fit codes best; NaN for a scale that does not exist.
    #[inline(never)]
    fn fit(&self, Sums { l, l2, xl }: &Sums) -> (Lane, Lane) {
        let mut scale = [0.0; LANES];
        let mut min = [0.0; LANES];
        for j in 0..LANES {
            let det = self.sum_w[j] * l2[j] - l[j] * l[j];
            let m = (l2[j] * self.sum_x[j] - l[j] * xl[j]) / det;
            let s = self.sum_w[j] * xl[j] - self.sum_x[j] * l[j];
            // Either division is selected before it is made, so that there is one.
            let (numerator, denominator) = if m > 0.0 { (xl[j], l2[j]) } else { (s, det) };
            let s = numerator / denominator;
            scale[j] = if det > 0.0 { s } else { f32::NAN };
            min[j] = if m > 0.0 { 0.0 } else { m };
        }
        (scale, min)
    }

    /// Takes over what has a lower error than before. A scale of NaN has an error of NaN, which is not lower.
    #[inline(never)]
    fn accept(&mut self, error: &Lane, factor: &Lane, scale: &Lane, min: &Lane) {
        for j in 0..LANES {
            let accept = error[j] < self.best[j];
            self.code_factor[j] = if accept { factor[j] } else { self.code_factor[j] };
            self.code_min[j] = if accept { self.min[j] } else { self.code_min[j] };
            self.first[j] = if accept { 0 } else { self.first[j] };
            self.best[j] = if accept { error[j] } else { self.best[j] };
            self.scale[j] = if accept { scale[j] } else { self.scale[j] };
            self.min[j] = if accept { min[j] } else { self.min[j] };
        }
    }

    /// The codes of the best solution.
    #[inline]
    fn finish<const CLIP: bool>(&self, x: &[Lane; N], n_max: f32) -> Affine<N> {
        let mut out = Affine {
            scale: [0.0; LANES],
            min: [0.0; LANES],
            codes: [[0; N]; LANES],
        };
        for j in 0..LANES {
            out.min[j] = -self.min[j];
            if self.flat[j] {
                continue;
            }
            out.scale[j] = self.scale[j];
            for (code, x) in out.codes[j].iter_mut().zip(x) {
                let v = self.code_factor[j] * (x[j] - self.code_min[j]);
                let l = if self.first[j] == 1 {
                    candidate::<false>(v, n_max)
                } else {
                    candidate::<CLIP>(v, n_max)
                };
                *code = l as i32 as u8;
            }
        }
        out
    }
}

// The steps below, `fit` and `accept` are calls of their own because they then compile to vector instructions as a
// whole: the stores of their results are what the optimiser starts from.

/// Weighted sums of codes, of their squares, and of their products with the values.
struct Sums {
    l: Lane,
    l2: Lane,
    xl: Lane,
}

/// Fills in the codes for a factor and a minimum.
#[inline(never)]
fn choose<const N: usize, const CLIP: bool>(
    x: &[Lane; N],
    w: &[Lane; N],
    factor: &Lane,
    min: &Lane,
    n_max: f32,
    codes: &mut [Lane; N],
) -> Sums {
    let mut sums = Sums {
        l: [0.0; LANES],
        l2: [0.0; LANES],
        xl: [0.0; LANES],
    };
    for ((x, w), code) in x.iter().zip(w).zip(codes) {
        for j in 0..LANES {
            let l = candidate::<CLIP>(factor[j] * (x[j] - min[j]), n_max);
            code[j] = l;
            sums.l[j] += w[j] * l;
            sums.l2[j] += w[j] * l * l;
            sums.xl[j] += w[j] * l * x[j];
        }
    }
    sums
}

/// The weighted errors of codes with a scale and a minimum.
#[inline(never)]
fn errors<const N: usize, const ABS: bool>(
    x: &[Lane; N],
    w: &[Lane; N],
    codes: &[Lane; N],
    scale: &Lane,
    min: &Lane,
) -> Lane {
    let mut error = [0.0; LANES];
    for ((x, w), l) in x.iter().zip(w).zip(codes) {
        for j in 0..LANES {
            error[j] += w[j] * penalty::<ABS>(scale[j] * l[j] + min[j] - x[j]);
        }
    }
    error
}

/// The code of a quotient. `CLIP`: limited before it is rounded, which matters beyond the range of `nint` only.
#[inline(always)]
fn candidate<const CLIP: bool>(v: f32, n_max: f32) -> f32 {
    if CLIP {
        nint(clamp(v, 0.0, n_max))
    } else {
        clamp(nint(v), 0.0, n_max)
    }
}

#[inline(always)]
fn penalty<const ABS: bool>(diff: f32) -> f32 {
    if ABS { diff.abs() } else { diff * diff }
}
