//! Changes to metadata in place.

use std::path::{Path, PathBuf};

use crate::{Error, Result, source};

/// Where the old head of a file is kept while a new one is written over it: `.NAME.edit` in the same folder.
pub fn journal_path(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    Some(path.with_file_name(format!(".{name}.edit")))
}

/// Refuses a file whose head may be half old, half new.
pub(crate) fn refuse_interrupted(path: &Path) -> Result<()> {
    if source::is_url(path) {
        return Ok(());
    }
    match journal_path(path) {
        Some(journal) if journal.exists() => {
            let what = format!(
                "an edit of the file was interrupted: run `gguf-inspect set {}` to restore it from `{}`",
                path.display(),
                journal.display()
            );
            Err(Error::malformed(path, 0, what))
        }
        _ => Ok(()),
    }
}
