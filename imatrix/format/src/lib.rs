//! Importance matrix files: what a calibration run saw, for each weight.
//!
//! An importance matrix says how strongly each input column of a weight is driven by real text: for every
//! weight it holds the sum of squares of each column of the activations (and, in newer files, the plain sum),
//! with the number of tokens that went into it. A dense weight has one such row; a stack of experts has one
//! row and one count for each expert, since every expert sees other tokens. The quantizer divides sums by
//! counts and weights each column's error with the result.
//!
//! Two forms are in use, and a file is recognised by its first bytes, never by its name:
//!
//! * GGUF: metadata `general.type` = `imatrix`, `imatrix.datasets`, `imatrix.chunk_count` and
//!   `imatrix.chunk_size`, and for each weight the F32 tensors `NAME.in_sum2`, `NAME.counts` and, in newer
//!   files, `NAME.in_sum` and `NAME.stats`. The last, like other suffixes, is derived data: it is written
//!   ([`stats`]) and passed over by the reader. The dataset key may be an array or a single string. Keys of this
//!   suite say what a matrix was made of ([`Origin`]); other readers pass them over.
//! * Legacy (`.dat`): little-endian records of a name, a number of chunks and mean squares times that number,
//!   with an optional trailer of chunk count and dataset. It has lost the token counts, the counts of single
//!   experts and the plain sums; [`Imatrix::lost_in_legacy`] says so in words.
//!
//! Reading refuses what cannot be an importance matrix: values that are not finite, negative sums of squares,
//! sums without counts, lengths that do not fit together, a record that the file ends in (with its byte
//! position). Nothing is allocated that the file does not back with bytes. A count of zero is sound: an expert
//! that no token reached. Its importance is 1 for every column, as if nothing were known.
//!
//! [`Imatrix`] holds all values in memory; [`Index`] leaves them in the file and reads the columns that are asked for.
//!
//! Matrices of several texts are added up by [`Merger`]; experts that saw few tokens are pulled towards the mean of
//! their tensor by [`shrink`].

mod gguf_form;
mod index;
mod legacy;
mod merge;
mod origin;
mod prior;
pub mod stats;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use gguf::atomic::AtomicFile;
use gguf::source::Source;

pub use index::{GROUP, Index, Place};
pub use merge::Merger;
pub use origin::{Origin, OriginModel};
pub use prior::shrink;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The container.
    #[error(transparent)]
    Container(#[from] gguf::Error),
    /// Not a sound importance matrix.
    #[error("`{file}`: {what}")]
    Malformed {
        /// The file.
        file: Box<str>,
        /// Object, place, expectation and finding.
        what: Box<str>,
    },
    /// Matrices that cannot be merged.
    #[error("{what}")]
    Misfit {
        /// The weight, what was expected and what was found.
        what: Box<str>,
    },
}

impl Error {
    fn malformed(path: &Path, what: impl Into<Box<str>>) -> Self {
        Self::Malformed {
            file: path.display().to_string().into(),
            what: what.into(),
        }
    }
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Sums over the inputs of one weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Sum of squares of each column, matrix after matrix: `n_cols * n_mat` values.
    pub sums: Vec<f32>,
    /// Sum of each column, laid out the same; empty where not recorded.
    pub means: Vec<f32>,
    /// Tokens seen by each matrix (one for a dense weight, one an expert else). The matrices of a weight without
    /// experts (the heads of latent attention) share one count, and so do all those of an entry of a legacy file,
    /// in chunks.
    pub counts: Vec<u64>,
}

impl Entry {
    /// Mean squares, matrix after matrix; ones for a matrix that saw nothing.
    fn mean_squares(&self) -> Vec<f32> {
        let n_cols = self.sums.len() / self.counts.len().max(1);
        let mut out = self.sums.clone();
        for (row, &count) in out.chunks_exact_mut(n_cols.max(1)).zip(&self.counts) {
            for v in row {
                *v = if count > 0 { *v / count as f32 } else { 1.0 };
            }
        }
        out
    }
}

/// A weight of which sums are to be kept, for the size of the file.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    /// Full name.
    pub name: &'a str,
    /// Columns that share a count: those of a matrix, or of all matrices where they have one count together.
    pub n_cols: u64,
    /// Counts: 1, or one an expert.
    pub n_mat: u64,
    /// Whether the plain sums are kept too.
    pub has_means: bool,
}

/// Bytes of the GGUF form with these weights, known before there are sums.
///
/// # Errors
/// Weights whose sums make no file.
pub fn gguf_bytes(weights: &[Weight<'_>], datasets: &[String], origin: Option<&Origin>) -> Result<u64> {
    let head = gguf_form::Head {
        datasets,
        chunk_count: 0,
        chunk_size: 0,
        origin,
    };
    Ok(gguf_form::layout(weights, &head)?.total_bytes)
}

/// Bytes of the legacy form with these weights, if all of them see data.
pub fn legacy_bytes(weights: &[Weight<'_>], dataset: &str) -> u64 {
    legacy::n_bytes(weights, dataset)
}

/// A whole importance matrix, by weight name in byte order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    /// Entries by full weight name (`blk.0.attn_q.weight`).
    pub entries: BTreeMap<String, Entry>,
    /// Base names of the calibration texts.
    pub datasets: Vec<String>,
    /// Chunks seen.
    pub chunk_count: u32,
    /// Tokens of a chunk; 1 for a legacy file, whose counts are chunks.
    pub chunk_size: u32,
    /// What it was made of; the legacy form and other tools' files do not say.
    pub origin: Option<Origin>,
}

impl Imatrix {
    /// Reads either form.
    pub fn read(path: &Path) -> Result<Self> {
        Self::from_source(gguf::source::open(path)?)
    }

    /// As [`Imatrix::read`], from any source.
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self> {
        if is_gguf(&*source)? {
            gguf_form::read(source)
        } else {
            legacy::read(&*source)
        }
    }

    /// Writes the GGUF form. Refuses to write over one of `inputs`, and over any file unless `force`.
    pub fn write_gguf(&self, path: &Path, force: bool, inputs: &[&Path]) -> Result<()> {
        self.write_gguf_to(AtomicFile::create(path, force, inputs, None)?)
    }

    /// Writes the GGUF form to an output that was started.
    pub fn write_gguf_to(&self, out: AtomicFile) -> Result<()> {
        gguf_form::write(self, out)
    }

    /// Writes the legacy form, leaving out entries without any data. Refuses to write over one of `inputs`,
    /// and over any file unless `force`.
    pub fn write_legacy(&self, path: &Path, force: bool, inputs: &[&Path]) -> Result<()> {
        self.write_legacy_to(AtomicFile::create(path, force, inputs, None)?)
    }

    /// As [`Imatrix::write_legacy`], to an output that was started.
    pub fn write_legacy_to(&self, out: AtomicFile) -> Result<()> {
        legacy::write(self, out)
    }

    /// The mean squares of a weight's columns, matrix after matrix (`n_cols * n_mat` values); ones for a
    /// matrix that saw nothing. `None` if the weight has no entry.
    pub fn importance(&self, name: &str) -> Option<Vec<f32>> {
        self.entries.get(name).map(Entry::mean_squares)
    }

    /// What the legacy form cannot hold of this matrix, as a phrase; `None` if nothing is lost that counts.
    pub fn lost_in_legacy(&self) -> Option<String> {
        let per_expert = self.entries.values().filter(|e| e.counts.len() > 1).count();
        let means = self.entries.values().filter(|e| !e.means.is_empty()).count();
        let weights = |n: usize| format!("{n} weight{}", if n == 1 { "" } else { "s" });
        let mut lost = Vec::new();
        if per_expert > 0 {
            lost.push(format!("the counts of single experts of {}", weights(per_expert)));
        }
        if means > 0 {
            lost.push(format!("the plain sums of {}", weights(means)));
        }
        let empty = self
            .entries
            .values()
            .filter(|e| e.counts.iter().all(|c| *c == 0))
            .count();
        if empty > 0 {
            lost.push(format!("{} that saw nothing", weights(empty)));
        }
        if self.datasets.len() > 1 {
            lost.push(format!(
                "the names of {} of {} texts",
                self.datasets.len() - 1,
                self.datasets.len()
            ));
        }
        if self.origin.is_some() {
            lost.push("what it was made of".to_owned());
        }
        let last = lost.pop()?;
        Some(if lost.is_empty() {
            last
        } else {
            format!("{} and {last}", lost.join(", "))
        })
    }
}

fn is_gguf(source: &dyn Source) -> Result<bool> {
    let mut magic = [0; 4];
    if source.len() >= 4 {
        source.read_at(0, &mut magic)?;
    }
    Ok(&magic == b"GGUF")
}

/// Whether a weight is a stack of experts, which see tokens of their own. Heads of latent attention, whose weight has
/// several matrices too, see all tokens.
pub fn is_experts(name: &str) -> bool {
    name.contains("_exps.")
}

/// The part of a path behind the last separator of either kind: files must not carry private folders.
pub fn base_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The first value that is not finite or, if `signed` is false, negative: its index and a phrase for it.
fn first_bad(values: &[f32], signed: bool) -> Option<(usize, String)> {
    let at = values
        .iter()
        .position(|v| !v.is_finite() || (!signed && *v < 0.0))?;
    Some((at, values[at].to_string()))
}

/// A phrase for a value that cannot be a sum.
fn bad_value(matrix: u64, column: u64, signed: bool, found: &str) -> String {
    let (label, wanted) = if signed {
        ("sum", "a finite number")
    } else {
        ("sum of squares", "a finite number that is not negative")
    };
    format!("matrix {matrix}, column {column}: {label}: expected {wanted}, found {found}")
}

/// Refuses sums that do not make whole rows of as many columns each.
fn check_lengths(path: &Path, name: &str, n_values: u64, n_mat: u64) -> Result<()> {
    if n_mat == 0 || n_values == 0 || !n_values.is_multiple_of(n_mat) {
        let what = format!(
            "weight `{name}`: expected whole rows of sums, found {n_values} sums and {n_mat} as the number of counts"
        );
        return Err(Error::malformed(path, what));
    }
    Ok(())
}

/// Checks the values of one entry, wherever it came from.
fn check_entry(path: &Path, name: &str, entry: &Entry) -> Result<()> {
    let n_mat = entry.counts.len();
    check_lengths(path, name, entry.sums.len() as u64, n_mat as u64)?;
    let n_cols = entry.sums.len() / n_mat;
    for (values, signed) in [(&entry.sums, false), (&entry.means, true)] {
        if let Some((i, found)) = first_bad(values, signed) {
            let place = bad_value((i / n_cols) as u64, (i % n_cols) as u64, signed, &found);
            return Err(Error::malformed(path, format!("weight `{name}`, {place}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
