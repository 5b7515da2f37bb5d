//! The checkpoint's files: settings, and tensors with their places.

mod files;
mod index;
mod safetensors;
mod stored;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gguf::source::Source;
use serde_json::Value as Json;

pub(crate) use files::{read_json, read_json_if_there, read_text_if_there};
pub(crate) use safetensors::Dtype;
pub(crate) use stored::{Storage, Stored};

use crate::Result;
use crate::error::Error;

/// A tensor of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct SourceTensor {
    /// Name in the checkpoint.
    pub(crate) name: String,
    /// Number format.
    pub(crate) dtype: Dtype,
    /// Dimensions as the checkpoint has them: row length last.
    pub(crate) shape: Vec<u64>,
    /// Index into [`Weights::files`].
    pub(crate) file: usize,
    /// First byte in the file.
    pub(crate) at: u64,
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
        let at = self.at + i * n_rows * n_cols * self.dtype.bytes();
        Stored {
            n_rows,
            n_cols,
            storage: Storage::Plain {
                file: self.file,
                dtype: self.dtype,
                at,
            },
        }
    }
}

/// All tensors of a checkpoint: checked against the files' lengths and the index, none of them read.
#[derive(Debug)]
pub(crate) struct Weights {
    /// The safetensors files in the order in which they are visited.
    pub(crate) files: Vec<Arc<dyn Source>>,
    /// The tensors: in the order of the files, then of the header.
    pub(crate) tensors: Vec<SourceTensor>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
}

impl Weights {
    /// Opens the safetensors of a folder and reads their headers.
    ///
    /// # Errors
    /// Files that are missing, cut or malformed, and tensors that are in the index or in the files only.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let index = index::Index::of(dir)?;
        let mut weights = Self {
            files: Vec::new(),
            tensors: Vec::new(),
            notes: index.notes.clone(),
        };
        for (file, name) in index.files.iter().enumerate() {
            let source = gguf::source::open(&dir.join(name))?;
            for tensor in safetensors::read_header(&*source)? {
                let safetensors::Entry {
                    name,
                    dtype,
                    shape,
                    at,
                } = tensor;
                weights.tensors.push(SourceTensor {
                    name,
                    dtype,
                    shape,
                    file,
                    at,
                });
            }
            weights.files.push(source);
        }
        index.compare(&weights.tensors)?;
        Ok(weights)
    }

    /// The files' names, for messages and to keep the output from replacing one of them.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(|f| f.path().to_owned()).collect()
    }
}

/// The settings of checkpoints that `ModelOpt` has quantized.
const QUANT_CONFIG: &str = "hf_quant_config.json";

/// Refuses checkpoints whose weights are stored in a form that this program has no decoder for.
pub(crate) fn refuse_quantized(dir: &Path, config: &Json) -> Result<()> {
    let other: Option<Json> = read_json_if_there(&dir.join(QUANT_CONFIG))?;
    let places = [
        ("config.json", Some(config), "quantization_config"),
        (QUANT_CONFIG, other.as_ref(), "quantization"),
    ];
    for (file, json, key) in places {
        let Some(settings) = json.and_then(|json| gguf_models::hf::lookup(json, key)) else {
            continue;
        };
        let method = settings["quant_method"]
            .as_str()
            .or(settings["quant_algo"].as_str());
        return Err(Error::unsupported(
            format!("{file} `{key}`: method `{}`", method.unwrap_or("unknown")),
            "take the checkpoint with unquantized weights",
        ));
    }
    Ok(())
}
