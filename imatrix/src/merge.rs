//! `--in-file A --in-file B -o OUT`: several matrices as one.

use std::path::{Path, PathBuf};

use gguf::atomic::AtomicFile;
use gguf_cli::{Failure, Result, count, say, warn};
use gguf_imatrix_format::{Error, Imatrix, Merger};

use crate::args::Args;
use crate::summary::Written;
use crate::{files, origin};

/// Reads and adds up files. What a user should know of each is warned of, unless `quiet`.
pub(crate) fn read_all(in_files: &[PathBuf], quiet: bool) -> Result<Imatrix> {
    let (first, rest) = in_files
        .split_first()
        .ok_or_else(|| Failure::Usage("expected `--in-file FILE`, found none".to_owned()))?;
    let first = files::read(first)?;
    let model = first.origin.as_ref().and_then(|o| o.model.clone());
    let mut all = Merger::new(first);
    for path in rest {
        let name = path.display();
        let mut other = files::read(path)?;
        origin::align(model.as_ref(), &mut other);
        let notes = all.add(other).map_err(|e| match e {
            Error::Misfit { what } => Failure::Input(format!("`{name}`: {what}")),
            e => files::failure(e),
        })?;
        for note in notes.iter().filter(|_| !quiet) {
            warn(&format!("`{name}`: {note}"));
        }
    }
    Ok(all.finish())
}

/// Merges files into one.
pub(crate) fn run(args: &Args) -> Result<()> {
    let out = args.output.as_path();
    let inputs: Vec<&Path> = args.in_file.iter().map(PathBuf::as_path).collect();
    let reserved = AtomicFile::create(out, args.force.force, &inputs, None)?;
    args.warn_of_name();
    let imatrix = read_all(&args.in_file, args.talk.quiet)?;
    files::write(&imatrix, args.form(), reserved)?;
    let written = Written::new(&imatrix, out, args);
    written.tell();
    if !args.talk.quiet {
        say(&written.line(&format!(" of {}", count(inputs.len() as u64, "matrix"))));
    }
    written.print(None)?;
    written.verdict()
}
