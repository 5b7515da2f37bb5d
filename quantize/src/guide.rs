//! The importance matrix as the quantizer uses it.

use std::path::Path;

use gguf::TensorInfo;
use gguf_cli::{Failure, Result, count};
use gguf_imatrix_format::{Imatrix, base_name};

/// A loaded importance matrix and the name it goes by in the output.
#[derive(Debug)]
pub struct Guide {
    imatrix: Imatrix,
    /// The file's name without folders.
    pub file: String,
}

impl Guide {
    /// Reads a file, in whatever form. If `include` is not empty only entries stay whose name contains one
    /// of it; entries whose name contains one of `exclude` go.
    pub fn load(path: &Path, include: &[String], exclude: &[String]) -> Result<Self> {
        let mut imatrix = Imatrix::read(path).map_err(|e| match e {
            gguf_imatrix_format::Error::Container(e) => match Failure::from(e) {
                Failure::Input(text) => Failure::Input(format!("importance matrix: {text}")),
                other => other,
            },
            e => Failure::Input(format!("importance matrix {e}")),
        })?;
        let n_all = imatrix.entries.len();
        let any = |list: &[String], name: &str| list.iter().any(|part| name.contains(part.as_str()));
        imatrix
            .entries
            .retain(|name, _| (include.is_empty() || any(include, name)) && !any(exclude, name));
        if imatrix.entries.is_empty() {
            let option = if include.is_empty() {
                "--exclude-weights"
            } else {
                "--include-weights"
            };
            return Err(Failure::Usage(format!(
                "`{option}` leaves nothing of the {} of the importance matrix `{}`",
                count(n_all as u64, "entry"),
                path.display()
            )));
        }
        let name = path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        Ok(Self { imatrix, file: name })
    }

    /// Entries in use.
    pub fn n_entries(&self) -> usize {
        self.imatrix.entries.len()
    }

    /// Chunks of text that went into it; 0 if unknown.
    pub fn chunk_count(&self) -> u32 {
        self.imatrix.chunk_count
    }

    /// Base name of the first calibration text.
    pub fn dataset(&self) -> Option<&str> {
        self.imatrix.datasets.first().map(|d| base_name(d))
    }

    /// What the matrix has for a tensor: `Ok(None)` if nothing, an error if it is of another length than the
    /// tensor needs (one value a column of each matrix).
    pub fn coverage(&self, tensor: &TensorInfo) -> std::result::Result<Option<f64>, String> {
        let Some(entry) = self.imatrix.entries.get(&tensor.name) else {
            return Ok(None);
        };
        let wanted = tensor.shape.dim(0) * tensor.shape.dim(2);
        if entry.sums.len() as u64 != wanted {
            return Err(format!(
                "importance matrix `{}` is of another model: tensor `{}` {} needs {wanted} values, found {}",
                self.file,
                tensor.name,
                tensor.shape,
                entry.sums.len()
            ));
        }
        Ok(Some(entry.coverage()))
    }

    /// One weight a column of each matrix, matrix after matrix.
    pub fn importance(&self, name: &str) -> Option<Vec<f32>> {
        self.imatrix.importance(name)
    }
}
