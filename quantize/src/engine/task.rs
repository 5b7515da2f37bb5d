//! The work on some rows of one tensor: read, decode, encode for each target, write.

use gguf_blocks::{Cpu, EncodeRow, Format, Importance, Unit};
use gguf_cli::{Failure, Result};

use crate::plan::Step;

use super::Work;
use super::fault::{Fault, first_not_finite};
use super::queue::Task;

/// Sizes of a tensor's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSizes {
    pub(crate) n_cols: usize,
    /// Bytes of a row in the source.
    pub(crate) from: usize,
    /// Rows that are read together because the source has them interleaved, or as one with a trailer.
    pub(crate) unit: usize,
}

impl RowSizes {
    pub(crate) fn of(step: &Step) -> Result<Self> {
        let shape = &step.source.shape;
        if shape.n_bytes(step.from) != Some(step.source.n_bytes) {
            return Err(Failure::Input(format!(
                "tensor `{}`: expected whole blocks and groups of rows of `{}`, found shape {shape}",
                step.source.name, step.from.name
            )));
        }
        Ok(Self {
            n_cols: shape.n_cols() as usize,
            from: row_bytes(step, step.from)?,
            unit: match step.from.geometry.unit() {
                Unit::Block | Unit::Rows => step.from.geometry.interleave,
                Unit::Tensor => shape.n_rows().max(1) as usize,
            },
        })
    }
}

/// Bytes of a row of a step's tensor in a type.
pub(crate) fn row_bytes(step: &Step, format: &Format) -> Result<usize> {
    let n_cols = step.source.shape.n_cols();
    let bytes = format.geometry.row_bytes(n_cols);
    bytes.and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
        Failure::Input(format!(
            "tensor `{}`: rows of {n_cols} elements are not whole blocks of `{}`",
            step.source.name, format.name
        ))
    })
}

/// Where the importance of a matrix comes from: one weight a column, or nothing.
pub(crate) type Importances<'a> = dyn Fn(&Step, usize) -> Result<Vec<f32>> + Sync + 'a;

/// What one worker keeps from task to task.
#[derive(Default)]
pub(crate) struct Scratch {
    raw: Vec<u8>,
    values: Vec<f32>,
    encoded: Vec<Vec<u8>>,
    /// For each target that has the tensor. A step has the same targets in each of its tasks.
    importance: Vec<Known>,
}

/// The importance of one matrix, kept for the rows to come: reading it may take a while.
#[derive(Default)]
pub(crate) struct Known {
    /// Index of the step, number of the matrix.
    of: Option<(usize, usize)>,
    weights: Vec<f32>,
}

impl Known {
    /// The weights of a matrix (index of the step, number of the matrix), loaded where it is not the one that is there.
    ///
    /// # Errors
    /// A read of the importance matrix that fails.
    pub(crate) fn weights(
        &mut self,
        step: &Step,
        of: (usize, usize),
        importances: &Importances<'_>,
    ) -> Result<&[f32]> {
        if self.of != Some(of) {
            self.weights = importances(step, of.1)?;
            self.of = Some(of);
        }
        Ok(&self.weights)
    }
}

/// One target's part in a task.
pub(super) struct Sink<'a> {
    pub(super) step: &'a Step,
    /// The output that takes the tensor, and the byte where it begins there.
    pub(super) output: usize,
    pub(super) at: u64,
}

/// Reads rows of a tensor and writes them for each sink in its type. Returns the bytes read.
pub(super) fn run(work: &Work<'_>, task: &Task, sinks: &[Sink<'_>], scratch: &mut Scratch) -> Result<u64> {
    let step = sinks.first().expect("a task has a target").step;
    let rows = &task.rows;
    let sizes = RowSizes::of(step)?;
    let n_rows = (rows.end - rows.start) as usize;
    scratch
        .raw
        .resize(n_rows * sizes.from + step.from.geometry.tensor_trailer_bytes, 0);
    let at = rows.start * sizes.from as u64;
    work.file.read_tensor(&step.source, at, &mut scratch.raw)?;
    if sinks.iter().any(|s| s.step.is_copy())
        && let Some(fault) = Fault::in_rows(step.from, sizes.n_cols, rows.start, &scratch.raw)
    {
        return Err(unsound(&fault, step));
    }
    encode(sizes, task, sinks, work.importances, scratch)?;
    for (sink, encoded) in sinks.iter().zip(&scratch.encoded) {
        let bytes = if sink.step.is_copy() {
            &scratch.raw
        } else {
            encoded
        };
        let at = sink.at + rows.start * row_bytes(sink.step, sink.step.to)? as u64;
        work.outputs.write_at(sink.output, at, bytes)?;
    }
    Ok(scratch.raw.len() as u64)
}

/// Fills `scratch.encoded` from `scratch.raw` for the sinks whose type is another than the source's.
fn encode(
    sizes: RowSizes,
    task: &Task,
    sinks: &[Sink<'_>],
    importances: &Importances<'_>,
    scratch: &mut Scratch,
) -> Result<()> {
    let Scratch {
        raw,
        values,
        encoded,
        importance,
    } = scratch;
    encoded.resize_with(sinks.len(), Vec::new);
    importance.resize_with(sinks.len(), Default::default);
    encoded.iter_mut().for_each(Vec::clear);
    if sinks.iter().all(|s| s.step.is_copy()) {
        return Ok(());
    }
    let step = sinks[0].step;
    values.resize(sizes.unit * sizes.n_cols, 0.0);
    for (unit, raw) in raw.chunks_exact(sizes.unit * sizes.from).enumerate() {
        let decoded = step.from.decode_rows(sizes.n_cols, raw, values);
        decoded.expect("the plan refuses types without a decoder");
        for (i, values) in values.chunks(sizes.n_cols).enumerate() {
            let row = task.rows.start + (unit * sizes.unit + i) as u64;
            if let Some(col) = first_not_finite(values) {
                return Err(unsound(&Fault::not_finite(row, col, values[col]), step));
            }
            for ((sink, out), known) in sinks.iter().zip(&mut *encoded).zip(&mut *importance) {
                if sink.step.is_copy() {
                    continue;
                }
                let of = (task.step, sink.step.matrix_of(row));
                let weights = as_importance(known.weights(sink.step, of, importances)?);
                let at = out.len();
                out.resize(at + row_bytes(step, sink.step.to)?, 0);
                encode_row(sink.step, row, values, weights, &mut out[at..])?;
            }
        }
    }
    Ok(())
}

/// Weights of columns as encoders take them; none where there are none.
pub(crate) fn as_importance(weights: &[f32]) -> Importance<'_> {
    match weights {
        [] => Importance::None,
        weights => Importance::Column(weights),
    }
}

/// The encoder of a step's type.
pub(crate) fn encoder(step: &Step) -> EncodeRow {
    let encoder = step.to.encoder(Cpu::best());
    encoder.expect("the plan refuses types without an encoder")
}

fn encode_row(
    step: &Step,
    row: u64,
    values: &[f32],
    importance: Importance<'_>,
    out: &mut [u8],
) -> Result<()> {
    encoder(step)(values, importance, out);
    match step.to.check_rows(values.len(), out) {
        None => Ok(()),
        Some(place) => Err(unsound(
            &Fault::too_large(row, place.col, step.to, &values[place.col..]),
            step,
        )),
    }
}

fn unsound(fault: &Fault, step: &Step) -> Failure {
    Failure::Input(fault.describe(&step.source.name, &step.source.shape))
}
