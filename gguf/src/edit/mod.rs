//! Changes to metadata, in place where the new head fits the room of the old one.
//!
//! The data section begins where the padded tensor list ends, so a head can change in place if it takes as many bytes
//! as before once it is padded. Room to grow comes from the padding, and from a key `gguf.pad` ([`crate::key::PAD`]),
//! an array of zeros that stands last and that `--reserve-metadata` writes. It shrinks and grows against the other
//! keys byte for byte, so that a change and its undoing give the same file. A head that shrinks by more than the
//! padding gets such a key. Everything else is a copy: the new head, then the old data section as it stands.
//!
//! Pairs that are not changed are passed on as bytes: text that is not UTF-8, versions 2 and 3 and the order stay.
//!
//! Before a head is changed in place, the bytes that will change are put beside the file ([`journal_path`]). A file
//! with such a journal is refused by every program until [`recover`] has put the old head back.

mod copy;
mod in_place;
mod journal;
mod plan;

use std::path::{Path, PathBuf};

pub use in_place::{Step, recover};
pub use plan::{Change, Plan, Room, plan};

use crate::{Error, Result, source};

/// Where the old head of a file is kept while a new one is written over it: `.NAME.edit` in the folder of the file
/// itself, also where `path` is a symbolic link to it.
pub fn journal_path(path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok();
    let path = real.as_deref().unwrap_or(path);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(".edit");
    Some(path.with_file_name(name))
}

/// Refuses a file whose head may be half old, half new.
pub(crate) fn refuse_interrupted(path: &Path) -> Result<()> {
    if source::is_url(path) {
        return Ok(());
    }
    match journal_path(path) {
        Some(journal) if journal.symlink_metadata().is_ok() => {
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
