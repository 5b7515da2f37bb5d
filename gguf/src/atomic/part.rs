//! The file that an output is until it is complete: `.NAME.new` beside it, locked as long as a run is at work.
//!
//! The name is fixed, so that a stopped run leaves one file at most, which says what it was to be and goes with the
//! next run of the same output. The lock tells what is left over from what another run writes.

use std::fs::{File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tempfile::TempPath;

use super::own::{FLAGS, is_own};
use super::{BUSY, NEW, beside, folder_of, hidden, refuse};
use crate::{Error, Result};

/// What of it, if another run writes the same output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// This one is refused.
    Refuse,
    /// Both write, and the last one to end has the name.
    Allow,
}

/// Tries before a name that comes and goes counts as another run's.
const TRIES: usize = 100;

/// The name of the file. Dropped, it removes the file, which must be before that is closed: as long as it is open, the
/// name is this run's. If the file has another name by then, or somebody has removed it by hand, what has the name is
/// another run's, and stays.
#[derive(Debug)]
pub(super) struct Part {
    path: TempPath,
    id: FileId,
}

/// Which file something is: device, number, and when it was made, where the system tells, since the number of a file that
/// is gone may be given to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    dev: u64,
    ino: u64,
    made: Option<SystemTime>,
}

impl FileId {
    pub(crate) fn new(meta: &Metadata) -> Self {
        Self {
            dev: meta.dev(),
            ino: meta.ino(),
            made: meta.created().ok(),
        }
    }

    /// Of what has a name, which may be a link.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        path.symlink_metadata().ok().map(|meta| Self::new(&meta))
    }
}

impl Part {
    fn new(path: TempPath, file: &File) -> io::Result<Self> {
        let id = FileId::new(&file.metadata()?);
        Ok(Self { path, id })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is still under the name.
    pub(super) fn is_there(&self) -> bool {
        FileId::at(&self.path) == Some(self.id)
    }

    /// Whether another file is.
    pub(super) fn is_replaced(&self) -> bool {
        FileId::at(&self.path).is_some_and(|id| id != self.id)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let keep = !self.is_there();
        self.path.disable_cleanup(keep);
    }
}

/// Makes the file.
pub(super) fn create(path: &Path, others: Others) -> Result<(Part, File)> {
    let part = beside(path, NEW);
    let io = |source| Error::Io {
        action: "create",
        path: path.to_owned(),
        source,
    };
    for _ in 0..TRIES {
        let is_ours = match open(&part, true) {
            Ok(file) => match file.try_lock() {
                // Between the two calls another run may have taken it for a leftover.
                Ok(()) if is_at(&file, &part) => {
                    let part = TempPath::try_from_path(part).and_then(|part| Part::new(part, &file));
                    return Ok((part.map_err(io)?, file));
                }
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => false,
                Err(TryLockError::Error(_)) => {
                    drop(std::fs::remove_file(&part));
                    return without_locks(path).map_err(io);
                }
            },
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match remove_leftover(&part) {
                Ok(is_removed) => is_removed,
                Err(TryLockError::WouldBlock) => false,
                Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::NotFound => true,
                Err(TryLockError::Error(e)) if is_no_lock(&e) => return without_locks(path).map_err(io),
                Err(TryLockError::Error(e)) => return Err(in_the_way(path, &part, &e)),
            },
            Err(e) => return Err(io(e)),
        };
        match others {
            _ if is_ours => {}
            Others::Allow => return without_locks(path).map_err(io),
            Others::Refuse => return Err(refuse(path, BUSY)),
        }
    }
    Err(refuse(path, BUSY))
}

/// Removes what a run that was stopped has left. False if it went meanwhile.
fn remove_leftover(part: &Path) -> Result<bool, TryLockError> {
    let meta = part.symlink_metadata().map_err(TryLockError::Error)?;
    if !is_own(&meta) {
        let what = "it is no regular file with one name: remove it";
        return Err(TryLockError::Error(io::Error::other(what)));
    }
    let file = open(part, false).map_err(TryLockError::Error)?;
    file.try_lock()?;
    // Only now: it is of no run, and no other removes it.
    if is_at(&file, part) {
        std::fs::remove_file(part).map_err(TryLockError::Error)?;
    }
    Ok(true)
}

fn open(part: &Path, anew: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(anew)
        .mode(0o666)
        .custom_flags(FLAGS)
        .open(part)
}

/// Whether an open file is the one under a name.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let file = file.metadata().ok().map(|meta| FileId::new(&meta));
    file.is_some() && file == FileId::at(path)
}

/// A file that no other run can name, where there are no locks or the name is another run's: `.NAME.new-RANDOM`.
fn without_locks(path: &Path) -> io::Result<(Part, File)> {
    let part = tempfile::Builder::new()
        .prefix(&format!("{}.new-", hidden(path)))
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder_of(path))?;
    let (file, part) = part.into_parts();
    Ok((Part::new(part, &file)?, file))
}

fn is_no_lock(e: &io::Error) -> bool {
    matches!(
        rustix::io::Errno::from_io_error(e),
        Some(rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOLCK)
    )
}

fn in_the_way(path: &Path, part: &Path, e: &io::Error) -> Error {
    let part: PathBuf = part.to_owned();
    refuse(
        path,
        &format!(
            "`{}`, which stands in the way, cannot be removed: {e}",
            part.display()
        ),
    )
}
