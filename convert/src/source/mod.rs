//! The checkpoint's files: settings, and tensors with their places.

mod assemble;
mod bitnet;
mod coded;
mod columns;
mod files;
mod grid;
mod index;
mod method;
mod numbers;
mod recipes;
mod safetensors;
mod stored;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gguf::source::Source;
use serde_json::Value as Json;

pub(crate) use files::{read_bytes, read_json, read_json_if_there, read_text, read_text_if_there};
pub(crate) use method::Method;
pub(crate) use safetensors::Dtype;
pub(crate) use stored::Stored;

use crate::Result;
use numbers::Data;
use stored::{Quantized, Storage};

/// A tensor of a checkpoint. Quantized weights have their plain name and their own shape; the tensors of scales and
/// the like that belong to them are part of them.
#[derive(Clone, Debug)]
pub(crate) struct SourceTensor {
    /// Name in the checkpoint.
    pub(crate) name: String,
    /// Number format; of quantized weights the plain one that takes their place: BF16.
    pub(crate) dtype: Dtype,
    /// Dimensions as the checkpoint has them: row length last.
    pub(crate) shape: Vec<u64>,
    /// Where the numbers are.
    place: Place,
}

/// Where a tensor's numbers are.
#[derive(Clone, Debug)]
enum Place {
    Plain(Data),
    Quantized(Arc<dyn Quantized>),
}

impl SourceTensor {
    /// Matrices that it is a stack of; 1 for vectors.
    pub(crate) fn n_matrices(&self) -> u64 {
        let n = self.shape.len().saturating_sub(2);
        self.shape[..n].iter().product()
    }

    /// Matrix `i` of the stack. A vector is a matrix of one row.
    pub(crate) fn matrix(&self, i: u64) -> Stored {
        let (n_rows, n_cols) = match self.shape.as_slice() {
            [.., rows, cols] => (*rows, *cols),
            [cols] => (1, *cols),
            [] => (1, 1),
        };
        // The header's check has proved that all matrices lie in the file.
        let of_matrix = |data: &Data| Data {
            at: data.at + i * n_rows * n_cols * data.dtype.bytes(),
            ..*data
        };
        let storage = match &self.place {
            Place::Plain(data) => Storage::Plain(of_matrix(data)),
            Place::Quantized(stack) => Storage::Quantized {
                stack: Arc::clone(stack),
                matrix: i,
            },
        };
        Stored {
            n_rows,
            n_cols,
            repacked: false,
            storage,
        }
    }
}

/// All tensors of a checkpoint: checked against the files' lengths and the index, none of them read.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// The safetensors files in the order in which they are visited.
    pub(crate) files: Vec<Arc<dyn Source>>,
    /// The tensors: in the order of the files, then of their names.
    pub(crate) tensors: Vec<SourceTensor>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
}

impl Weights {
    /// Opens the safetensors of a folder and reads their headers. `config` is that of the text model.
    ///
    /// # Errors
    /// Files that are missing, cut or malformed; tensors that are in the index or in the files only; quantized weights
    /// of an unknown method or without what belongs to them.
    pub(crate) fn open(dir: &Path, config: &Json) -> Result<Self> {
        let method = Method::find(dir, config)?;
        let index = index::Index::of(dir)?;
        let mut files = Vec::new();
        let mut entries = Vec::new();
        for (i, name) in index.files.iter().enumerate() {
            let source = gguf::source::open(&dir.join(name))?;
            entries.extend(safetensors::read_header(&*source, i)?);
            files.push(source);
        }
        let found = index.compare(&entries, &files)?;
        let (tensors, mut notes) = assemble::assemble(&entries, found, method.as_ref(), &files)?;
        notes.splice(0..0, index.notes);
        Ok(Self {
            files,
            tensors,
            notes,
        })
    }

    /// The files' names, for messages and to keep the output from replacing one of them.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(|f| f.path().to_owned()).collect()
    }
}
