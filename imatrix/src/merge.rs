//! `--in-file A --in-file B -o OUT`: several matrices as one.

use std::path::{Path, PathBuf};

use gguf_cli::{Failure, Result, count, say, warn};
use gguf_imatrix_format::{Error, Imatrix, Merger};

use crate::args::Form;
use crate::coverage::{Coverage, ENOUGH};
use crate::files;

/// Reads and adds up files. What a user should know of each is warned of.
pub(crate) fn read_all(in_files: &[PathBuf]) -> Result<Imatrix> {
    let (first, rest) = in_files
        .split_first()
        .ok_or_else(|| Failure::Usage("expected `--in-file FILE`, found none".to_owned()))?;
    let mut all = Merger::new(files::read(first)?);
    for path in rest {
        let name = path.display();
        let notes = all.add(files::read(path)?).map_err(|e| match e {
            Error::Misfit { what } => Failure::Input(format!("`{name}`: {what}")),
            e => files::failure(e),
        })?;
        for note in notes {
            warn(&format!("`{name}`: {note}"));
        }
    }
    Ok(all.finish())
}

/// Merges files into one.
pub(crate) fn run(in_files: &[PathBuf], out: &Path, form: Form, force: bool, quiet: bool) -> Result<()> {
    let inputs: Vec<&Path> = in_files.iter().map(PathBuf::as_path).collect();
    drop(gguf::atomic::AtomicFile::create(out, force, &inputs, None)?);
    let imatrix = read_all(in_files)?;
    files::write(&imatrix, out, form, force, &inputs)?;
    let coverage = Coverage::of(&imatrix.entries, ENOUGH);
    for line in files::lost(&imatrix, form).iter().chain(&coverage.warning()) {
        warn(line);
    }
    if !quiet {
        say(&format!(
            "wrote `{}`: {} of {}, {} of {}",
            out.display(),
            count(imatrix.entries.len() as u64, "weight"),
            count(in_files.len() as u64, "matrix"),
            count(imatrix.chunk_count.into(), "chunk"),
            count(imatrix.chunk_size.into(), "token")
        ));
    }
    Ok(())
}
