//! Matrices from and to files, for every command.

use std::path::Path;

use gguf_cli::{Failure, Result};
use gguf_imatrix_format::Imatrix;

use crate::args::Form;

/// What becomes of an error of the format.
pub(crate) fn failure(e: gguf_imatrix_format::Error) -> Failure {
    match e {
        gguf_imatrix_format::Error::Container(e) => e.into(),
        e => Failure::Input(e.to_string()),
    }
}

/// Reads a matrix of either form.
pub(crate) fn read(path: &Path) -> Result<Imatrix> {
    Imatrix::read(path).map_err(failure)
}

/// Writes a matrix; refuses to write over one of `inputs`, and over any file unless `force`.
pub(crate) fn write(imatrix: &Imatrix, path: &Path, form: Form, force: bool, inputs: &[&Path]) -> Result<()> {
    let written = match form {
        Form::Gguf => imatrix.write_gguf(path, force, inputs),
        Form::Dat => imatrix.write_legacy(path, force, inputs),
    };
    written.map_err(failure)
}

/// What writing a matrix in this form loses, as a line.
pub(crate) fn lost(imatrix: &Imatrix, form: Form) -> Option<String> {
    let lost = imatrix.lost_in_legacy().filter(|_| form == Form::Dat);
    lost.map(|l| format!("the legacy form does not hold {l}"))
}
