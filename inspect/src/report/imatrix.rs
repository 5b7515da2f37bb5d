//! What an importance matrix says of each tensor.

use std::path::Path;

use gguf::{GgufFile, short};
use gguf_cli::{Failure, Result};
use gguf_imatrix_format::{Entry, Imatrix};

use super::model::{Cell, Grid};

/// Refuses a matrix of another model: one without a column for each of a tensor, or without any tensor of the model.
pub(super) fn check(matrix: &Imatrix, path: &Path, model: &GgufFile) -> Result<()> {
    let refuse = |what: String| {
        Err(Failure::Input(format!(
            "`{}` is the importance matrix of another model than `{}`: {what}",
            path.display(),
            model.path().display()
        )))
    };
    let mut found = false;
    for (name, entry) in &matrix.entries {
        let Some(tensor) = model.tensor(name) else {
            continue;
        };
        found = true;
        let n_cols = tensor.shape.n_cols();
        if !(entry.sums.len() as u64).is_multiple_of(n_cols.max(1)) {
            return refuse(format!(
                "tensor `{}`: expected a multiple of {n_cols} columns, found {}",
                short(name),
                entry.sums.len()
            ));
        }
    }
    if found || matrix.entries.is_empty() || !model.is_complete() {
        return Ok(());
    }
    refuse("it has none of its tensors".to_owned())
}

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
