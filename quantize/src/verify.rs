//! Proof that the files hold what was meant, on samples: rows are read back, compared with a second encoding of the
//! source's rows, and decoded to see what was lost.

use gguf::GgufFile;
use gguf::resumable::Outputs;
use gguf_cli::{Failure, Result};
use rayon::prelude::*;
use serde::Serialize;

use crate::engine::{Importances, Known, RowSizes, Target, as_importance, encoder, row_bytes};
use crate::plan::Step;

/// One row of this many is looked at.
const ONE_OF: u64 = 256;
/// Rows of a tensor that are looked at if it has as many.
const LEAST: u64 = 4;
/// Rows of a tensor that are looked at at most, besides one of each matrix: reads are scattered, and disks may be slow.
const MOST: u64 = 256;

/// What encoding lost, over some values: sums of squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Loss {
    /// Differences, weighted with the importance.
    weighted: f64,
    /// Values, weighted with the importance.
    weighted_norm: f64,
    plain: f64,
    plain_norm: f64,
    /// Rows that were looked at.
    pub(crate) n_rows: u64,
}

impl Loss {
    fn add_row(&mut self, values: &[f32], found: &[f32], importance: &[f32]) {
        for (i, (x, y)) in values.iter().zip(found).enumerate() {
            let (x, y) = (f64::from(*x), f64::from(*y));
            let w = importance.get(i).map_or(1.0, |w| f64::from(*w));
            let square = (x - y) * (x - y);
            self.weighted += w * square;
            self.weighted_norm += w * x * x;
            self.plain += square;
            self.plain_norm += x * x;
        }
        self.n_rows += 1;
    }

    /// Adds the loss over other values.
    pub(crate) fn add(&mut self, other: &Self) {
        self.weighted += other.weighted;
        self.weighted_norm += other.weighted_norm;
        self.plain += other.plain;
        self.plain_norm += other.plain_norm;
        self.n_rows += other.n_rows;
    }

    /// Weighted squares of differences as a share of the values' weighted squares.
    pub(crate) fn weighted_error(&self) -> f64 {
        ratio(self.weighted, self.weighted_norm)
    }

    /// The same without weights.
    pub(crate) fn error(&self) -> f64 {
        ratio(self.plain, self.plain_norm)
    }

    /// Whether zeros in place of all values would have been nearer.
    fn is_worse_than_nothing(&self) -> bool {
        let worse = |e: f64| e > 1.0 || e.is_nan();
        worse(self.error()) && worse(self.weighted_error())
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if part == 0.0 { 0.0 } else { part / whole }
}

/// Looks at samples of what this run wrote. For each target and each of its tensors that was encoded: the loss.
///
/// # Errors
/// A row that is not on disk as it was encoded; a tensor that zeros would have been nearer to.
pub(crate) fn verify(
    file: &GgufFile,
    targets: &[Target<'_>],
    outputs: &Outputs,
    importances: &Importances<'_>,
) -> Result<Vec<Vec<Option<Loss>>>> {
    let one = |target: &Target<'_>| {
        let pairs = target.steps.par_iter().zip(&target.places);
        pairs
            .map(|(step, place)| match place {
                Some((output, at)) if !step.is_copy() && step.source.n_bytes > 0 => {
                    tensor(file, step, (outputs, *output, *at), importances).map(Some)
                }
                _ => Ok(None),
            })
            .collect()
    };
    targets.iter().map(one).collect()
}

fn tensor(
    file: &GgufFile,
    step: &Step,
    (outputs, output, at): (&Outputs, usize, u64),
    importances: &Importances<'_>,
) -> Result<Loss> {
    let sizes = RowSizes::of(step)?;
    let to = row_bytes(step, step.to)?;
    let n_rows = step.source.shape.n_rows();
    let n_matrices = step.source.shape.dim(2);
    let n_samples = (n_rows / ONE_OF).clamp(LEAST, MOST).max(n_matrices).min(n_rows);
    let mut raw = vec![0; sizes.unit * sizes.from];
    let mut values = vec![0.0; sizes.unit * sizes.n_cols];
    let (mut written, mut expected) = (vec![0; to], vec![0; to]);
    let mut found = vec![0.0; sizes.n_cols];
    let (mut known, mut loss) = (Known::default(), Loss::default());
    for sample in 0..n_samples {
        let row = (2 * sample + 1) * n_rows / (2 * n_samples);
        let unit = sizes.unit as u64;
        file.read_tensor(&step.source, row / unit * unit * sizes.from as u64, &mut raw)?;
        let decoded = step.from.decode_rows(sizes.n_cols, &raw, &mut values);
        decoded.expect("the plan refuses types without a decoder");
        let values = &values[(row % unit) as usize * sizes.n_cols..][..sizes.n_cols];
        let weights = known.weights(step, (0, step.matrix_of(row)), importances)?;
        encoder(step)(values, as_importance(weights), &mut expected);
        outputs.read_at(output, at + row * to as u64, &mut written)?;
        if written != expected {
            let name = &step.source.name;
            return Err(Failure::Input(format!(
                "tensor `{name}`, row {row} of all: the file does not hold what was encoded; the source changed meanwhile, or the \
                 disk or the memory of this machine is damaged"
            )));
        }
        step.to.decode_rows(sizes.n_cols, &written, &mut found);
        loss.add_row(values, &found, weights);
    }
    if loss.is_worse_than_nothing() {
        return Err(Failure::Input(format!(
            "tensor `{}`: encoded as `{}` it is further from the source than zeros would be (relative error {:.3}); \
             choose another type for it with `--tensor-type`",
            step.source.name,
            step.to.name,
            loss.error()
        )));
    }
    Ok(loss)
}

/// What `--report` writes of a tensor.
#[derive(Debug, Serialize)]
pub(crate) struct TensorLoss<'a> {
    name: &'a str,
    role: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    rows: u64,
    sampled_rows: u64,
    weighted_error: f64,
    error: f64,
}

/// The losses of a target's tensors, in their order.
pub(crate) fn tensor_losses<'a>(steps: &'a [Step], losses: &[Option<Loss>]) -> Vec<TensorLoss<'a>> {
    let row = |(step, loss): (&'a Step, &Option<Loss>)| {
        let loss = (*loss)?;
        Some(TensorLoss {
            name: &step.name,
            role: step.role(),
            type_name: step.to.name,
            rows: step.source.shape.n_rows(),
            sampled_rows: loss.n_rows,
            weighted_error: loss.weighted_error(),
            error: loss.error(),
        })
    };
    steps.iter().zip(losses).filter_map(row).collect()
}

/// The losses of a target by role, in the order in which roles appear.
pub(crate) fn role_losses<'a>(steps: &'a [Step], losses: &[Option<Loss>]) -> Vec<(&'a str, Loss)> {
    let mut out: Vec<(&str, Loss)> = Vec::new();
    for (step, loss) in steps.iter().zip(losses) {
        let Some(loss) = loss else { continue };
        match out.iter_mut().find(|(role, _)| *role == step.role()) {
            Some((_, sum)) => sum.add(loss),
            None => out.push((step.role(), *loss)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_shares_of_squares() {
        let mut loss = Loss::default();
        loss.add_row(&[3.0, 4.0], &[3.0, 2.0], &[]);
        assert_eq!((loss.error(), loss.weighted_error()), (4.0 / 25.0, 4.0 / 25.0));
        loss.add_row(&[1.0, 1.0], &[0.0, 1.0], &[8.0, 0.0]);
        assert_eq!(loss.error(), 5.0 / 27.0);
        assert_eq!(loss.weighted_error(), 12.0 / 33.0);
        assert!(!loss.is_worse_than_nothing());
        loss.add_row(&[1.0], &[9.0], &[1.0]);
        assert!(loss.is_worse_than_nothing());
        let zeros = Loss::default();
        assert!(zeros.error() == 0.0 && !zeros.is_worse_than_nothing());
    }
}
