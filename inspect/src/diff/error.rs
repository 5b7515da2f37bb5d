//! The error of one model's tensors against another's.
//!
//! Both are decoded piece by piece. Sums are in f64: within a row four lanes that take the elements in turn, then rows
//! one after the other, so they are the same for any number of threads. Where a value of either side is infinite or
//! NaN, the pair is counted and left out of the sums.

use std::sync::atomic::{AtomicU64, Ordering};

use gguf::{GgufFile, TensorInfo};
use gguf_blocks::Format;
use gguf_cli::{Progress, Result, Unit};
use rayon::ThreadPool;
use serde::{Serialize, Serializer};

use crate::walk::{Buffers, Grid, Piece, in_order};

/// Sums over pairs of elements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    /// Pairs in the sums.
    pub(crate) n: u64,
    /// Pairs left out because one of them is infinite or NaN.
    pub(crate) non_finite: u64,
    /// Squares of A.
    aa: f64,
    /// Squares of B.
    bb: f64,
    /// Products of A and B.
    ab: f64,
    /// Squares of B - A.
    ee: f64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: &Self) {
        self.n += other.n;
        self.non_finite += other.non_finite;
        self.aa += other.aa;
        self.bb += other.bb;
        self.ab += other.ab;
        self.ee += other.ee;
    }

    /// Root of the mean squared error.
    pub(crate) fn rmse(&self) -> f64 {
        (self.ee / self.n.max(1) as f64).sqrt()
    }

    /// RMSE over the root mean square of A; infinite where A is all zeros and B is not.
    pub(crate) fn relative(&self) -> f64 {
        if self.ee == 0.0 {
            0.0
        } else {
            (self.ee / self.aa).sqrt()
        }
    }

    /// Cosine of the angle between A and B; `None` where one of them is all zeros.
    pub(crate) fn cosine(&self) -> Option<f64> {
        let norms = self.aa.sqrt() * self.bb.sqrt();
        (norms > 0.0).then(|| (self.ab / norms).clamp(-1.0, 1.0))
    }
}

impl Serialize for Sums {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Json {
            elements: u64,
            non_finite: u64,
            rmse: f64,
            /// JSON has no infinity: null.
            relative: Option<f64>,
            cosine: Option<f64>,
        }
        let relative = self.relative();
        Json {
            elements: self.n,
            non_finite: self.non_finite,
            rmse: self.rmse(),
            relative: relative.is_finite().then_some(relative),
            cosine: self.cosine(),
        }
        .serialize(s)
    }
}

/// A place in a tensor; the row counts over all matrices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Max {
    /// Absolute error.
    pub(crate) abs: f64,
    pub(crate) row: u64,
    pub(crate) col: u64,
}

/// The row or matrix with the largest relative error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Worst {
    pub(crate) index: u64,
    pub(crate) rmse: f64,
    #[serde(serialize_with = "finite")]
    pub(crate) relative: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn finite<S: Serializer>(x: &f64, s: S) -> std::result::Result<S::Ok, S::Error> {
    x.is_finite().then_some(*x).serialize(s)
}

impl Worst {
    fn new(index: u64, sums: &Sums) -> Self {
        Self {
            index,
            rmse: sums.rmse(),
            relative: sums.relative(),
        }
    }

    /// The worse of two; the first where they are alike.
    fn max(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(a), Some(b)) => Some(if b.relative > a.relative { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// The error of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TensorError {
    #[serde(flatten)]
    pub(crate) sums: Sums,
    pub(crate) max: Option<Max>,
    pub(crate) worst_row: Option<Worst>,
    /// Of a stack of matrices; `None` where there is only one.
    pub(crate) worst_expert: Option<Worst>,
}

/// What a comparison of two tensors gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The same type and bytes.
    Equal,
    /// Decoded and compared.
    Error(TensorError),
    /// Other bytes of a type that this build cannot decode; the first that differs.
    OtherBytes { first: u64 },
    /// Not compared, and why.
    Incomparable { why: &'static str },
}

/// A tensor that both models have.
#[derive(Debug, Serialize)]
pub(crate) struct Compared<'a> {
    pub(crate) name: &'a str,
    pub(crate) type_a: String,
    pub(crate) type_b: String,
    pub(crate) shape: &'a [u64],
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

impl Compared<'_> {
    pub(crate) fn error(&self) -> Option<&TensorError> {
        match &self.outcome {
            Outcome::Error(e) => Some(e),
            _ => None,
        }
    }
}

type Pair<'a> = (&'a TensorInfo, &'a TensorInfo);

/// Compares pairs of tensors, in their order. Both models are sound.
pub(crate) fn compute<'a>(
    a: &GgufFile,
    b: &GgufFile,
    pairs: &[Pair<'a>],
    pool: &ThreadPool,
    quiet: bool,
) -> Result<Vec<Compared<'a>>> {
    let mut outcomes: Vec<Option<Outcome>> = pairs.iter().map(incomparable).collect();
    let bytes_equal = |i: &usize| outcomes[*i].is_none() && pairs[*i].0.type_id == pairs[*i].1.type_id;
    let same_type: Vec<usize> = (0..pairs.len()).filter(bytes_equal).collect();
    let size = |i: &usize| pairs[*i].0.n_bytes.saturating_add(pairs[*i].1.n_bytes);
    let total = same_type.iter().map(size).sum();
    let progress = Progress::new("compare", total, Unit::Bytes, quiet);
    for (i, first) in first_difference(a, b, pairs, &same_type, pool, &progress)? {
        let decodes = pairs[i].0.format().is_some_and(|f| f.decode.is_some());
        outcomes[i] = match first {
            None => Some(Outcome::Equal),
            Some(first) if !decodes => Some(Outcome::OtherBytes { first }),
            Some(_) => None,
        };
    }
    progress.finish();
    let rest: Vec<usize> = (0..pairs.len()).filter(|&i| outcomes[i].is_none()).collect();
    let progress = Progress::new("decode", rest.iter().map(size).sum(), Unit::Bytes, quiet);
    for (i, error) in errors(a, b, pairs, &rest, pool, &progress)? {
        outcomes[i] = Some(Outcome::Error(error));
    }
    progress.finish();
    let compared = pairs.iter().zip(outcomes).map(|((a, b), outcome)| Compared {
        name: &a.name,
        type_a: a.type_name(),
        type_b: b.type_name(),
        shape: a.shape.dims(),
        // A tensor without elements has no piece to find an error in.
        outcome: outcome.unwrap_or(Outcome::Error(TensorError::default())),
    });
    Ok(compared.collect())
}

/// Why a pair cannot be compared, if it cannot.
fn incomparable((a, b): &Pair<'_>) -> Option<Outcome> {
    let why = |why| Some(Outcome::Incomparable { why });
    if (0..4).any(|i| a.shape.dim(i) != b.shape.dim(i)) {
        return why("the shapes differ");
    }
    if a.type_id == b.type_id {
        return (a.n_bytes != b.n_bytes)
            .then(|| why("the sizes differ"))
            .flatten();
    }
    let decodes = |t: &TensorInfo| t.format().is_some_and(|f| f.decode.is_some());
    if decodes(a) && decodes(b) {
        None
    } else {
        why("the types differ and one of them cannot be decoded")
    }
}

/// For each of these tensors of the same type the first byte that differs.
fn first_difference(
    a: &GgufFile,
    b: &GgufFile,
    pairs: &[Pair<'_>],
    indices: &[usize],
    pool: &ThreadPool,
    progress: &Progress,
) -> Result<Vec<(usize, Option<u64>)>> {
    // A set flag spares the rest of the tensor; the first difference is the first in order all the same, because
    // only pieces behind a differing one are passed over.
    let known: Vec<AtomicU64> = indices.iter().map(|_| AtomicU64::new(u64::MAX)).collect();
    let order = Ordering::Relaxed;
    let items = indices.iter().enumerate().flat_map(|(k, &i)| {
        let pieces = Grid::bytes(pairs[i].0.n_bytes).pieces();
        pieces.map(move |piece| (k, piece))
    });
    let work = |(x, y): &mut (Buffers, Buffers), &(k, piece): &(usize, Piece)| {
        let (at, n) = (piece.col, piece.n_cols as usize);
        progress.add(2 * piece.n_cols);
        if known[k].load(order) < at {
            return Ok(());
        }
        let (ta, tb) = pairs[indices[k]];
        let (x, y) = (x.read(a, ta, at, n)?, y.read(b, tb, at, n)?);
        if x != y {
            let i = x.iter().zip(y).position(|(x, y)| x != y).unwrap_or(0);
            known[k].fetch_min(at + i as u64, order);
        }
        Ok(())
    };
    in_order(pool, items, work, |_, ()| Ok(()))?;
    let first = |k: usize| Some(known[k].load(order)).filter(|&at| at < u64::MAX);
    Ok(indices.iter().enumerate().map(|(k, &i)| (i, first(k))).collect())
}

/// The errors of these pairs, which can be decoded.
fn errors(
    a: &GgufFile,
    b: &GgufFile,
    pairs: &[Pair<'_>],
    indices: &[usize],
    pool: &ThreadPool,
    progress: &Progress,
) -> Result<Vec<(usize, TensorError)>> {
    let jobs: Vec<(usize, &Format, &Format)> = indices
        .iter()
        .filter_map(|&i| Some((i, pairs[i].0.format()?, pairs[i].1.format()?)))
        .collect();
    let items = jobs.iter().flat_map(|&(i, fa, fb)| {
        let pieces = Grid::new(&pairs[i].0.shape, &[fa, fb]).pieces();
        pieces.map(move |piece| (i, fa, fb, piece))
    });
    let work = |(x, y): &mut (Buffers, Buffers), (i, fa, fb, piece): &(usize, &Format, &Format, Piece)| {
        let (ta, tb) = pairs[*i];
        let x_values = x.decode(a, ta, fa, piece)?;
        let y_values = y.decode(b, tb, fb, piece)?;
        let part = Part::of(x_values, y_values, piece, ta.shape.n_cols(), ta.shape.dim(1));
        progress.add((x.bytes.len() + y.bytes.len()) as u64);
        Ok(part)
    };
    let mut done: Vec<(usize, Gather)> = Vec::new();
    in_order(pool, items, work, |(i, _, _, piece), part| {
        if done.last().is_none_or(|(j, _)| *j != i) {
            done.push((i, Gather::default()));
        }
        let shape = &pairs[i].0.shape;
        let gather = &mut done.last_mut().expect("pushed above").1;
        gather.add(part, &piece, shape.n_cols());
        Ok(())
    })?;
    let several = |i: usize| pairs[i].0.shape.n_rows() > pairs[i].0.shape.dim(1);
    Ok(done
        .into_iter()
        .map(|(i, gather)| (i, gather.finish(several(i))))
        .collect())
}

/// The error of a piece: of each matrix that it has rows of.
struct Part(Vec<(u64, TensorError)>);

impl Part {
    fn of(a: &[f32], b: &[f32], piece: &Piece, n_cols: u64, of_matrix: u64) -> Self {
        let mut matrices: Vec<(u64, TensorError)> = Vec::new();
        let n = piece.n_cols as usize;
        for (row, (a, b)) in (piece.row..).zip(a.chunks_exact(n).zip(b.chunks_exact(n))) {
            let matrix = row / of_matrix;
            if matrices.last().is_none_or(|(m, _)| *m != matrix) {
                matrices.push((matrix, TensorError::default()));
            }
            let error = &mut matrices.last_mut().expect("pushed above").1;
            let (sums, max) = row_sums(a, b);
            error.sums.add(&sums);
            if max > 0.0 && error.max.is_none_or(|m| max > m.abs) {
                let same = |(&a, &b): (&f32, &f32)| difference(a, b).abs() == max;
                let col = a.iter().zip(b).position(same).unwrap_or(0) as u64 + piece.col;
                error.max = Some(Max { abs: max, row, col });
            }
            if piece.n_cols == n_cols {
                error.worst_row = Worst::max(error.worst_row, Some(Worst::new(row, &sums)));
            }
        }
        Self(matrices)
    }
}

/// Pieces of a tensor put together, in their order.
#[derive(Default)]
struct Gather {
    all: TensorError,
    /// The sums of the row that is being read, where rows are cut.
    row: Sums,
    matrix: u64,
    matrix_sums: Sums,
    worst_matrix: Option<Worst>,
}

impl Gather {
    fn add(&mut self, part: Part, piece: &Piece, n_cols: u64) {
        for (matrix, error) in part.0 {
            if matrix != self.matrix {
                self.end_matrix();
                self.matrix = matrix;
            }
            self.matrix_sums.add(&error.sums);
            self.all.sums.add(&error.sums);
            self.all.worst_row = Worst::max(self.all.worst_row, error.worst_row);
            if let Some(max) = error.max
                && self.all.max.is_none_or(|m| max.abs > m.abs)
            {
                self.all.max = Some(max);
            }
            if piece.n_cols < n_cols {
                self.row.add(&error.sums);
                if piece.col + piece.n_cols == n_cols {
                    let row = Worst::new(piece.row, &std::mem::take(&mut self.row));
                    self.all.worst_row = Worst::max(self.all.worst_row, Some(row));
                }
            }
        }
    }

    fn end_matrix(&mut self) {
        let sums = std::mem::take(&mut self.matrix_sums);
        self.worst_matrix = Worst::max(self.worst_matrix, Some(Worst::new(self.matrix, &sums)));
    }

    fn finish(mut self, several: bool) -> TensorError {
        self.end_matrix();
        self.all.worst_expert = self.worst_matrix.filter(|_| several);
        self.all
    }
}

/// B - A; 0 for a pair that is left out of the sums.
fn difference(a: f32, b: f32) -> f64 {
    let d = f64::from(b) - f64::from(a);
    if d.is_finite() { d } else { 0.0 }
}

/// The sums of a row and its largest absolute error.
fn row_sums(a: &[f32], b: &[f32]) -> (Sums, f64) {
    const LANES: usize = 4;
    let (mut aa, mut bb, mut ab, mut ee) = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
    let mut max = [0.0_f64; LANES];
    let mut add = |a: &[f32; LANES], b: &[f32; LANES]| {
        for i in 0..LANES {
            let (x, y) = (f64::from(a[i]), f64::from(b[i]));
            let d = y - x;
            aa[i] += x * x;
            bb[i] += y * y;
            ab[i] += x * y;
            ee[i] += d * d;
            max[i] = if d.abs() > max[i] { d.abs() } else { max[i] };
        }
    };
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        add(a, b);
    }
    let padded = |rest: &[f32]| {
        let mut lanes = [0.0; LANES];
        lanes[..rest.len()].copy_from_slice(rest);
        lanes
    };
    add(&padded(a_rest), &padded(b_rest));
    let sum = |v: [f64; LANES]| (v[0] + v[1]) + (v[2] + v[3]);
    let sums = Sums {
        n: a.len() as u64,
        non_finite: 0,
        aa: sum(aa),
        bb: sum(bb),
        ab: sum(ab),
        ee: sum(ee),
    };
    // Squares of finite f32 are far from the limits of f64.
    if sums.aa.is_finite() && sums.bb.is_finite() {
        return (sums, max.into_iter().fold(0.0, f64::max));
    }
    finite_sums(a, b)
}

/// As [`row_sums`], where some values are infinite or NaN.
fn finite_sums(a: &[f32], b: &[f32]) -> (Sums, f64) {
    let mut sums = Sums::default();
    let mut max = 0.0_f64;
    for (&a, &b) in a.iter().zip(b) {
        if !(a.is_finite() && b.is_finite()) {
            sums.non_finite += 1;
            continue;
        }
        let (x, y) = (f64::from(a), f64::from(b));
        let d = y - x;
        sums.n += 1;
        sums.aa += x * x;
        sums.bb += y * y;
        sums.ab += x * y;
        sums.ee += d * d;
        max = max.max(d.abs());
    }
    (sums, max)
}

#[cfg(test)]
mod tests {
    use super::row_sums;

    #[test]
    fn errors_follow_their_definitions() {
        let (a, b) = ([1.0, -2.0, 3.0, 0.5, 2.0], [1.0, -2.5, 3.0, 0.5, 0.0]);
        let (sums, max) = row_sums(&a, &b);
        assert_eq!((sums.n, sums.non_finite, max), (5, 0, 2.0));
        assert_eq!(sums.rmse(), (4.25_f64 / 5.0).sqrt());
        assert_eq!(sums.relative(), (4.25_f64 / 18.25).sqrt());
        let cosine = 15.25 / (18.25_f64.sqrt() * 16.5_f64.sqrt());
        assert!((sums.cosine().expect("no zeros") - cosine).abs() < 1e-15);
    }

    #[test]
    fn infinite_and_nan_pairs_are_left_out_and_counted() {
        let (a, b) = ([1.0, f32::NAN, 3.0, 4.0], [2.0, 5.0, f32::NEG_INFINITY, 4.0]);
        let (sums, max) = row_sums(&a, &b);
        assert_eq!((sums.n, sums.non_finite, max), (2, 2, 1.0));
        assert_eq!(sums.rmse(), 0.5_f64.sqrt());
    }

    #[test]
    fn zeros_have_no_cosine_and_an_infinite_relative_error() {
        let (sums, _) = row_sums(&[0.0; 3], &[0.0, 1.0, 0.0]);
        assert_eq!((sums.cosine(), sums.relative()), (None, f64::INFINITY));
        assert_eq!(row_sums(&[0.0; 3], &[0.0; 3]).0.relative(), 0.0);
    }
}
