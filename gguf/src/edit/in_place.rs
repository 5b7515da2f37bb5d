//! Writes a head over the old one, so that a crash at any moment leaves the old head or the way back to it.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use super::journal::{self, Journal};
use super::plan::changed;
use super::{Plan, journal_path};
use crate::atomic::{self, folder_of, journal_part, read_own, sync_folder};
use crate::{Error, GgufFile, Result, source, split};

/// How far an edit in place has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The file is locked and stands as planned for.
    Locked,
    /// The old bytes are on disk beside the file.
    Journalled,
    /// The new bytes are written, perhaps not on disk yet.
    Written,
    /// The new bytes are on disk.
    Synced,
}

impl Plan {
    /// Writes the new head over the old one. `on` hears of each step; an error of its own ends the work there and
    /// leaves everything as it stands at that moment, as a crash would.
    ///
    /// # Errors
    /// A head that does not fit in place, a file that cannot be written or that another edit holds, a file that
    /// is no longer the one planned for.
    pub fn apply_in_place(&self, on: &mut dyn FnMut(Step) -> Result<()>) -> Result<()> {
        let Some(new) = &self.in_place else {
            let what = format!(
                "cannot edit `{}` in place: the new head does not fit",
                self.path.display()
            );
            return Err(Error::Output(what.into()));
        };
        let path = real_path(&self.path)?;
        let file = lock(&path)?;
        self.check_unchanged(&file)?;
        on(Step::Locked)?;
        let ranges = changed(&self.old, new);
        if ranges.is_empty() {
            return Ok(());
        }
        let kept = ranges
            .iter()
            .map(|r| (r.start as u64, self.old[r.clone()].to_vec()));
        let journal = Journal {
            n_bytes: self.n_bytes,
            head_bytes: self.old.len() as u64,
            head_sha256: Sha256::digest(&*self.old).into(),
            ranges: kept.collect(),
        };
        let journal_path = write_journal(&path, &journal)?;
        on(Step::Journalled)?;
        let io = |e| write_error(&path, e);
        for range in ranges {
            file.write_all_at(&new[range.clone()], range.start as u64)
                .map_err(io)?;
        }
        on(Step::Written)?;
        file.sync_all().map_err(io)?;
        on(Step::Synced)?;
        remove(&journal_path)
    }

    /// Refuses a file that changed since it was planned for.
    pub(super) fn check_unchanged(&self, file: &File) -> Result<()> {
        let io = |source| Error::Io {
            action: "read",
            path: self.path.clone(),
            source,
        };
        let mut same = file.metadata().map_err(io)?.len() == self.n_bytes;
        let mut buffer = vec![0; 1 << 16];
        let mut at = 0;
        for piece in self.old.chunks(buffer.len()) {
            let found = &mut buffer[..piece.len()];
            if same {
                file.read_exact_at(found, at).map_err(io)?;
                same = found == piece;
            }
            at += piece.len() as u64;
        }
        if !same {
            let what = "the file changed while the edit was planned: run the command again";
            return Err(Error::malformed(&self.path, 0, what));
        }
        Ok(())
    }
}

/// Puts the old head of a file back whose edit was interrupted. Returns the journal that it came from, which is gone
/// then; `None` if there was nothing to do. `inputs` are files that an edit reads beside the one that it changes.
///
/// # Errors
/// An input with the name of a file that an edit makes, a journal that is damaged or belongs to another file, an edit
/// that is still at work: nothing is changed.
pub fn recover(path: &Path, inputs: &[&Path]) -> Result<Option<PathBuf>> {
    if source::is_url(path) {
        return Ok(None);
    }
    let path = real_path(&split::in_folder(path)?)?;
    let Some(journal_path) = journal_path(&path) else {
        return Ok(None);
    };
    let part = journal_part(&journal_path);
    let beside = [
        journal_path.clone(),
        part.clone(),
        atomic::beside(&path, atomic::NEW),
    ];
    atomic::refuse_among(&path, beside, inputs)?;
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    if !is_there(&part) && !is_there(&journal_path) {
        return Ok(None);
    }
    let file = lock(&path)?;
    // Again: an edit that was at work may have come to its end since.
    if is_there(&part) {
        // It was not complete yet when the edit stopped, so the head is as it was.
        remove(&part)?;
    }
    if !is_there(&journal_path) {
        return Ok(None);
    }
    let journal = Journal::decode(&read_journal(&journal_path)?, &journal_path)?;
    let read = |source| Error::Io {
        action: "read",
        path: path.clone(),
        source,
    };
    let refuse = |what: &str| {
        let what = format!(
            "{what}: it is the journal of another file, nothing was restored; if `{}` is whole, remove the journal",
            path.display()
        );
        Err(Error::malformed(&journal_path, 0, what))
    };
    let n_bytes = file.metadata().map_err(read)?.len();
    if n_bytes != journal.n_bytes {
        return refuse(&format!(
            "expected a file of {} bytes, found {n_bytes}",
            journal.n_bytes
        ));
    }
    let mut head = vec![0; usize::try_from(journal.head_bytes).expect("at most MAX_BYTES")];
    file.read_exact_at(&mut head, 0).map_err(read)?;
    for (at, bytes) in &journal.ranges {
        let at = usize::try_from(*at).expect("inside the head");
        head[at..at + bytes.len()].copy_from_slice(bytes);
    }
    if Sha256::digest(&head).as_slice() != journal.head_sha256 {
        return refuse("the rest of the head is not what it was");
    }
    // Only a head that can be read is put back.
    let old = GgufFile::from_source(source::bytes(path.clone(), head))?;
    if old.first().data_offset != journal.head_bytes {
        return refuse("its head has another length");
    }
    let restore = || {
        for (at, bytes) in &journal.ranges {
            file.write_all_at(bytes, *at)?;
        }
        file.sync_all()
    };
    restore().map_err(|e| write_error(&path, e))?;
    remove(&journal_path)?;
    Ok(Some(journal_path))
}

/// The file behind symbolic links: journals and locks are its own.
pub(super) fn real_path(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|source| Error::Io {
        action: "open",
        path: path.to_owned(),
        source,
    })
}

/// Opens a file for an edit and keeps other edits away until it is dropped.
pub(super) fn lock(path: &Path) -> Result<File> {
    let io = |source| Error::Io {
        action: "open for writing",
        path: path.to_owned(),
        source,
    };
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| {
        if e == rustix::io::Errno::WOULDBLOCK {
            let what = format!("cannot edit `{}`: another edit is at work on it", path.display());
            return Error::Output(what.into());
        }
        io(e.into())
    })?;
    if !atomic::is_at(&file, path) {
        let what = format!(
            "cannot edit `{}`: another edit has replaced it: run the command again",
            path.display()
        );
        return Err(Error::Output(what.into()));
    }
    Ok(file)
}

fn write_journal(path: &Path, journal: &Journal) -> Result<PathBuf> {
    let Some(journal_path) = journal_path(path) else {
        return Err(write_error(path, std::io::ErrorKind::InvalidFilename.into()));
    };
    if journal_path.symlink_metadata().is_ok() {
        let what = "an earlier edit was interrupted: run the command again";
        return Err(Error::malformed(path, 0, what));
    }
    atomic::write_journal(&journal_path, &journal.encode())?;
    Ok(journal_path)
}

fn read_journal(path: &Path) -> Result<Vec<u8>> {
    let io = |source| Error::Io {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let meta = path.symlink_metadata().map_err(io)?;
    if !meta.is_file() || meta.len() > journal::MAX_BYTES {
        let what = "expected a journal of an edit, found something else; nothing was restored";
        return Err(Error::malformed(path, 0, what));
    }
    let mut bytes = Vec::new();
    let file = read_own(path).map_err(io)?;
    file.take(journal::MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    Ok(bytes)
}

fn remove(journal: &Path) -> Result<()> {
    std::fs::remove_file(journal).map_err(|source| Error::Io {
        action: "remove",
        path: journal.to_owned(),
        source,
    })?;
    sync_folder(folder_of(journal))
}

fn write_error(path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        action: "write",
        path: path.to_owned(),
        source,
    }
}
