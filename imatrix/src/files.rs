//! Matrices from and to files, for every command.

use std::path::Path;

use gguf::atomic::AtomicFile;
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

/// Writes a matrix to an output that was started.
pub(crate) fn write(imatrix: &Imatrix, form: Form, out: AtomicFile) -> Result<()> {
    let written = match form {
        Form::Gguf => imatrix.write_gguf_to(out),
        Form::Dat => imatrix.write_legacy_to(out),
    };
    written.map_err(failure)
}

/// What writing a matrix in this form loses, as a line.
pub(crate) fn lost(imatrix: &Imatrix, form: Form) -> Option<String> {
    let lost = imatrix.lost_in_legacy().filter(|_| form == Form::Dat);
    lost.map(|l| format!("the legacy form does not hold {l}"))
}
