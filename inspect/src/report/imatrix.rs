//! What an importance matrix says of each tensor.

use gguf_imatrix_format::{Entry, Imatrix};

use super::model::{Cell, Grid};

/// Tokens that reached each tensor; of a stack of experts the share of experts that any token reached.
pub(super) fn coverage(matrix: &Imatrix) -> Grid {
    Grid::of(matrix.entries.keys().map(String::as_str), |name| {
        Some(cell(name, matrix.entries.get(name)?))
    })
}

fn cell(name: &str, entry: &Entry) -> Cell {
    let mut counts = entry.counts.clone();
    counts.sort_unstable();
    let n = counts.len();
    let (least, median) = (
        counts.first().copied().unwrap_or(0),
        counts.get(n / 2).copied().unwrap_or(0),
    );
    let reached = counts.iter().filter(|&&c| c > 0).count();
    if n <= 1 {
        return Cell {
            value: median as f64,
            text: median.to_string(),
            title: format!("{name}: {median} tokens"),
        };
    }
    Cell {
        value: least as f64,
        text: format!("{reached}/{n}, {least}"),
        title: format!("{name}: {reached} of {n} experts reached, least {least} tokens, median {median}"),
    }
}

/// Mean square of the activations in front of each tensor.
pub(super) fn strength(matrix: &Imatrix) -> Grid {
    Grid::of(matrix.entries.keys().map(String::as_str), |name| {
        let entry = matrix.entries.get(name)?;
        let n_cols = entry.sums.len() / entry.counts.len().max(1);
        let tokens: f64 = entry.counts.iter().map(|&c| c as f64).sum();
        let sum: f64 = entry.sums.iter().map(|&s| f64::from(s)).sum();
        let mean = sum / (tokens * n_cols as f64);
        mean.is_finite().then(|| Cell {
            value: mean,
            text: format!("{mean:.2e}"),
            title: format!("{name}: mean square {mean:.4e}"),
        })
    })
}
