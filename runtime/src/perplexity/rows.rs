//! Rows of logits to scores, in parallel.

use std::path::Path;

use super::base::{self, BaseRow, Form};
use super::kl::Comparison;
use super::score::LogSum;
use super::tally::Score;
use crate::chunks::{ChunkRows, Chunks};
use crate::pool;
use crate::{Error, Result};

/// What rows are scored beside.
pub(super) enum Beside<'a> {
    Nothing,
    /// Records to be written.
    Encode(&'a mut Vec<u8>, Form),
    /// Records of a base file.
    Coded(&'a [u8], &'a Path, Form),
    /// The base's own logits and their sums.
    Exact(&'a [f32], &'a [LogSum]),
}

/// Scores of all rows, or the first failure in their order.
pub(super) fn score(block: &ChunkRows<'_>, chunks: &Chunks, beside: Beside<'_>) -> Result<Vec<Score>> {
    let n_vocab = block.n_vocab;
    let rows = block.places.iter().zip(block.rows.chunks(n_vocab));
    let target = |&place: &(usize, usize)| chunks.target(place) as usize;
    match beside {
        Beside::Nothing => collect(rows, |(place, logits)| {
            let sum = log_sum(*place, logits)?;
            Ok((sum.nll(logits[target(place)]), None))
        }),
        Beside::Encode(bytes, form) => {
            let row_bytes = form.row_bytes(n_vocab);
            bytes.resize(block.places.len() * row_bytes, 0);
            let rows = rows.zip(bytes.chunks_mut(row_bytes));
            collect(rows, |((place, logits), out)| {
                let sum = log_sum(*place, logits)?;
                match form {
                    Form::Full => base::encode(logits, &sum, out),
                    Form::Compact(layout) => layout.encode(logits, &sum, target(place), out),
                }
                Ok((f64::from(sum.total() - logits[target(place)]), None))
            })
        }
        Beside::Coded(bytes, path, form) => {
            let rows = rows.zip(bytes.chunks(form.row_bytes(n_vocab)));
            collect(rows, |((place, logits), record)| {
                coded(record, form, logits, *place, target(place)).map_err(|e| match e {
                    Fault::Record(what) => damaged(path, *place, &what),
                    Fault::Logit(e) => e,
                })
            })
        }
        Beside::Exact(base, sums) => {
            let base = base.chunks(n_vocab).zip(sums);
            collect(rows.zip(base), |((place, logits), (base, base_sum))| {
                let sum = log_sum(*place, logits)?;
                let found = Comparison::exact(logits, &sum, base, base_sum, target(place));
                Ok((found.nll, Some(found)))
            })
        }
    }
}

enum Fault {
    Record(String),
    Logit(Error),
}

/// The score of a row beside a record of a base file.
fn coded(
    record: &[u8],
    form: Form,
    logits: &[f32],
    place: (usize, usize),
    target: usize,
) -> std::result::Result<Score, Fault> {
    let n_vocab = logits.len();
    let sum = || log_sum(place, logits).map_err(Fault::Logit);
    let refuse = |fault: Option<String>| fault.map_or(Ok(()), |what| Err(Fault::Record(what)));
    let found = match form {
        Form::Full => {
            let base = BaseRow::new(record, n_vocab);
            refuse(base.fault())?;
            let found = Comparison::new(logits, &sum()?, base, target);
            refuse(found.fault(n_vocab))?;
            found
        }
        Form::Compact(layout) => {
            let base = layout.row(record);
            refuse(base.fault(n_vocab))?;
            Comparison::compact(logits, &sum()?, base, target)
        }
    };
    Ok((found.nll, Some(found)))
}

/// The softmax of a row, which must be of finite numbers.
pub(super) fn log_sum((chunk, pos): (usize, usize), logits: &[f32]) -> Result<LogSum> {
    LogSum::of(logits).map_err(|token| Error::NonFinite {
        chunk: chunk + 1,
        pos,
        token,
        value: logits[token],
    })
}

fn damaged(file: &Path, (chunk, pos): (usize, usize), what: &str) -> Error {
    let what = format!("chunk {}, position {pos}: {what}", chunk + 1);
    Error::Damaged {
        file: file.to_path_buf(),
        what,
    }
}

fn collect<I>(rows: I, score: impl Fn(I::Item) -> Result<Score> + Sync) -> Result<Vec<Score>>
where
    I: ExactSizeIterator + Send,
{
    pool::map(rows, score).into_iter().collect()
}
