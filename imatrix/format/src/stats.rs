//! Statistics of a matrix: how strongly, how evenly and how differently from layer to layer columns are driven.
//!
//! Averages are those of the plain sums where these are recorded, else of the squares. Matrices that saw no token are
//! left out. Formulas and their order are those of the reference, in f64.

use std::collections::BTreeMap;

use crate::{Entry, Imatrix};

/// Names of the statistics of a weight, in the order in which a file has them.
pub const SCHEMA: [&str; 12] = [
    "sum_sq",
    "mean",
    "elements",
    "std_deviation",
    "skewness",
    "kurtosis",
    "gain",
    "h_norm",
    "l2_dist",
    "cossim",
    "pearson",
    "covariance",
];

/// Below this a deviation, and a share in the entropy, is taken for none.
const TINY: f64 = 1e-10;

/// Statistics of one weight. What compares it with the same weight of the layer before is NaN where there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorStats {
    /// Full name.
    pub name: String,
    /// Its layer, if it is in one.
    pub layer: Option<u32>,
    /// Values by [`SCHEMA`].
    pub values: [f64; SCHEMA.len()],
}

/// Statistics of all weights of a layer together.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerStats {
    /// Number of the layer.
    pub layer: u32,
    /// Sum of the weights' mean squares.
    pub sum_sq: f64,
    /// Against the layer before; NaN in the first.
    pub change: Change,
}

/// How columns differ from those of the layer before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Root mean square, over that of the layer before.
    pub gain: f64,
    /// Euclidean distance of the averages.
    pub l2_dist: f64,
    /// Cosine of the averages.
    pub cossim: f64,
    /// Pearson correlation of the averages.
    pub pearson: f64,
    /// Covariance of the averages.
    pub covariance: f64,
}

/// Statistics of a whole matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Weights, by layer and name; those outside layers last.
    pub tensors: Vec<TensorStats>,
    /// Layers in order.
    pub layers: Vec<LayerStats>,
}

impl TensorStats {
    /// A statistic by its name in [`SCHEMA`].
    pub fn value(&self, name: &str) -> Option<f64> {
        let at = SCHEMA.iter().position(|s| *s == name)?;
        Some(self.values[at])
    }
}

/// Sums over the columns of a weight and those of the same weight one layer before.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    n: f64,
    dot: f64,
    squares: (f64, f64),
    centered_dot: f64,
    centered_squares: (f64, f64),
    distance: f64,
    /// Sum of mean squares and columns, of both.
    energy: (f64, f64),
    columns: (f64, f64),
}

impl Pair {
    /// Of columns that both have data for; `None` if the weights differ in length or share no such column.
    fn of(now: &Entry, before: &Entry) -> Option<Self> {
        if now.sums.len() != before.sums.len() {
            return None;
        }
        let plain = !now.means.is_empty() && !before.means.is_empty();
        let both = || columns(now, plain).zip(columns(before, plain));
        let both = || both().filter_map(|(a, b)| Some((a?.0, b?.0)));
        let (n, sums) = both().fold((0.0, (0.0, 0.0)), |(n, s), (a, b)| (n + 1.0, (s.0 + a, s.1 + b)));
        if n == 0.0 {
            return None;
        }
        let means = (sums.0 / n, sums.1 / n);
        let mut out = Self { n, ..Self::default() };
        for (a, b) in both() {
            out.dot += a * b;
            out.squares.0 += a * a;
            out.squares.1 += b * b;
            let (da, db) = (a - means.0, b - means.1);
            out.centered_dot += da * db;
            out.centered_squares.0 += da * da;
            out.centered_squares.1 += db * db;
            out.distance += (a - b) * (a - b);
        }
        (out.energy.0, out.columns.0) = energy(now);
        (out.energy.1, out.columns.1) = energy(before);
        Some(out)
    }

    fn add(&mut self, other: &Self) {
        self.n += other.n;
        self.dot += other.dot;
        self.squares.0 += other.squares.0;
        self.squares.1 += other.squares.1;
        self.centered_dot += other.centered_dot;
        self.centered_squares.0 += other.centered_squares.0;
        self.centered_squares.1 += other.centered_squares.1;
        self.distance += other.distance;
        self.energy.0 += other.energy.0;
        self.energy.1 += other.energy.1;
        self.columns.0 += other.columns.0;
        self.columns.1 += other.columns.1;
    }

    fn change(&self) -> Change {
        let ratio = |dot: f64, (a, b): (f64, f64)| {
            let norm = a.sqrt() * b.sqrt();
            if norm > 0.0 {
                (dot / norm).clamp(-1.0, 1.0)
            } else {
                0.0
            }
        };
        Change {
            gain: (self.energy.0 / self.columns.0).sqrt() / (self.energy.1 / self.columns.1).sqrt(),
            l2_dist: self.distance.sqrt(),
            cossim: ratio(self.dot, self.squares),
            pearson: ratio(self.centered_dot, self.centered_squares),
            covariance: self.centered_dot / self.n,
        }
    }
}

impl Change {
    const NONE: Self = Self {
        gain: f64::NAN,
        l2_dist: f64::NAN,
        cossim: f64::NAN,
        pearson: f64::NAN,
        covariance: f64::NAN,
    };
}

/// Average and mean square of each column; `None` for those of matrices that saw no token.
fn columns(entry: &Entry, plain: bool) -> impl Iterator<Item = Option<(f64, f64)>> {
    let n_cols = (entry.sums.len() / entry.counts.len().max(1)).max(1);
    entry.sums.iter().enumerate().map(move |(i, square)| {
        let count = *entry.counts.get(i / n_cols).filter(|c| **c > 0)? as f64;
        let square = f64::from(*square) / count;
        let average = if plain {
            f64::from(entry.means[i]) / count
        } else {
            square
        };
        Some((average, square))
    })
}

/// Sum of the mean squares, and how many there are.
fn energy(entry: &Entry) -> (f64, f64) {
    let squares = columns(entry, false).flatten();
    squares.fold((0.0, 0.0), |(sum, n), (_, v)| (sum + v, n + 1.0))
}

/// The statistics of one weight that need no other: those of [`SCHEMA`], the rest NaN.
fn alone(entry: &Entry) -> [f64; SCHEMA.len()] {
    let plain = !entry.means.is_empty();
    let averages = || columns(entry, plain).flatten().map(|(a, _)| a);
    let (sum, n) = energy(entry);
    let mut out = [f64::NAN; SCHEMA.len()];
    (out[0], out[2]) = (sum, n);
    if n == 0.0 {
        return out;
    }
    let (mut mean, mut seen) = (0.0, 0.0);
    for a in averages() {
        seen += 1.0;
        mean += (a - mean) / seen;
    }
    let mut moments = (0.0, 0.0, 0.0);
    for a in averages() {
        let d = a - mean;
        moments = (
            moments.0 + d * d,
            moments.1 + d * d * d,
            moments.2 + d * d * d * d,
        );
    }
    let variance = moments.0 / n;
    let deviation = variance.sqrt();
    (out[1], out[3]) = (mean, deviation);
    (out[4], out[5]) = if deviation > TINY {
        (
            moments.1 / n / (variance * deviation),
            moments.2 / n / (variance * variance) - 3.0,
        )
    } else {
        (0.0, 0.0)
    };
    out[7] = entropy(entry, n);
    out
}

/// Entropy of the shares of the columns in all squares, in percent of that of even shares.
fn entropy(entry: &Entry, n: f64) -> f64 {
    let squares = || columns(entry, false).flatten().map(|(_, v)| v);
    let total: f64 = squares().filter(|v| *v > 0.0).sum();
    let shares = squares().map(|v| v / total).filter(|p| *p > TINY);
    let bits: f64 = shares.map(|p| -p * p.log2()).sum();
    if n > 1.0 { 100.0 * bits / n.log2() } else { 0.0 }
}

/// Layer and the name behind it.
pub(crate) fn place(name: &str) -> (Option<u32>, &str) {
    let in_layer = name.strip_prefix("blk.").and_then(|r| r.split_once('.'));
    match in_layer.and_then(|(n, stem)| Some((n.parse().ok()?, stem))) {
        Some((layer, stem)) => (Some(layer), stem),
        None => (None, name),
    }
}

impl Statistics {
    /// Of all weights of a matrix.
    pub fn of(imatrix: &Imatrix) -> Self {
        let mut by_stem: BTreeMap<&str, BTreeMap<u32, &Entry>> = BTreeMap::new();
        for (name, entry) in &imatrix.entries {
            if let (Some(layer), stem) = place(name) {
                by_stem.entry(stem).or_default().insert(layer, entry);
            }
        }
        let mut tensors = Vec::with_capacity(imatrix.entries.len());
        let mut layers: BTreeMap<u32, (f64, Option<Pair>)> = BTreeMap::new();
        for (name, entry) in &imatrix.entries {
            let (layer, stem) = place(name);
            let before = layer.and_then(|l| by_stem.get(stem)?.range(..l).next_back());
            let pair = before.and_then(|(_, before)| Pair::of(entry, before));
            let mut values = alone(entry);
            let change = pair.map_or(Change::NONE, |p| p.change());
            values[6] = change.gain;
            values[8..].copy_from_slice(&[change.l2_dist, change.cossim, change.pearson, change.covariance]);
            if let Some(layer) = layer {
                let (sum, all) = layers.entry(layer).or_default();
                *sum += values[0];
                if let Some(pair) = pair {
                    all.get_or_insert_with(Pair::default).add(&pair);
                }
            }
            tensors.push(TensorStats {
                name: name.clone(),
                layer,
                values,
            });
        }
        tensors.sort_by_key(|t| t.layer.map_or(u64::MAX, u64::from));
        let layer = |(layer, (sum_sq, pair)): (u32, (f64, Option<Pair>))| LayerStats {
            layer,
            sum_sq,
            change: pair.map_or(Change::NONE, |p| p.change()),
        };
        Self {
            tensors,
            layers: layers.into_iter().map(layer).collect(),
        }
    }
}
