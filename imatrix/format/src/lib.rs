//! Importance matrix files: GGUF and legacy form.

use std::collections::BTreeMap;
use std::path::Path;

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
}

/// Sums over the inputs of one weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Sum of squares of each column, matrix after matrix: `n_cols * n_mat` values.
    pub sums: Vec<f32>,
    /// Sum of each column, laid out the same; empty where not recorded.
    pub means: Vec<f32>,
    /// Tokens seen by each matrix (one for a dense weight, one an expert else).
    pub counts: Vec<u64>,
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
    /// Tokens of a chunk.
    pub chunk_size: u32,
}

impl Imatrix {
    /// Reads either form.
    pub fn read(_path: &Path) -> Result<Self, Error> {
        todo!()
    }

    /// Writes the GGUF form.
    pub fn write_gguf(&self, _path: &Path, _force: bool) -> Result<(), Error> {
        todo!()
    }

    /// Writes the legacy form.
    pub fn write_legacy(&self, _path: &Path, _force: bool) -> Result<(), Error> {
        todo!()
    }

    /// The mean squares of a weight's columns, matrix after matrix; ones for a matrix that saw nothing.
    pub fn importance(&self, _name: &str) -> Option<Vec<f32>> {
        todo!()
    }
}
