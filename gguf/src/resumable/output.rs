//! One output: its names, its part file, the space it takes.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

use crate::atomic::{FileId, JOURNAL, PART, beside, disk_error, lost, open_own};
use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct Output {
    /// The final name, that of the file behind a symbolic link.
    pub(super) path: PathBuf,
    pub(super) part: PathBuf,
    n_bytes: u64,
    /// The part file of this run, or of the one it continues; any other is replaced by a new one.
    made: Mutex<Option<FileId>>,
    /// Open from the first write to the checkpoint that closes it.
    file: Mutex<Option<Arc<File>>>,
    /// Why a flush failed, if one did; held while one is at work.
    flushing: Mutex<Option<Errno>>,
}

impl Output {
    pub(super) fn new((path, n_bytes): &(PathBuf, u64)) -> Self {
        let path = match path.symlink_metadata() {
            // A link to nothing is refused later.
            Ok(meta) if meta.is_symlink() => path.canonicalize().unwrap_or_else(|_| path.clone()),
            _ => path.clone(),
        };
        Self {
            part: beside(&path, PART),
            path,
            n_bytes: *n_bytes,
            made: Mutex::default(),
            file: Mutex::default(),
            flushing: Mutex::default(),
        }
    }

    /// The journal of a run whose first output this is.
    pub(super) fn journal(&self) -> PathBuf {
        beside(&self.path, JOURNAL)
    }

    pub(super) fn is_made(&self) -> bool {
        self.made().is_some()
    }

    fn made(&self) -> MutexGuard<'_, Option<FileId>> {
        self.made.lock().expect("no thread panics with it")
    }

    /// What a journal says of the part file.
    pub(super) fn set_made(&self, made: bool) {
        *self.made() = made.then(|| FileId::at(&self.part)).flatten();
    }

    /// Bytes on disk that the part file has already.
    pub(super) fn allotted(&self) -> u64 {
        self.part.symlink_metadata().map_or(0, |m| m.blocks() * 512)
    }

    /// Whether the part file is there with all its bytes, written or not.
    pub(super) fn is_whole(&self) -> bool {
        is_file_of(&self.part, self.n_bytes)
    }

    /// Whether the part file that was written is still under its name.
    pub(super) fn is_there(&self) -> bool {
        let made = *self.made();
        made.is_some() && made == FileId::at(&self.part)
    }

    /// Whether the final file is there with all its bytes.
    pub(super) fn is_published(&self) -> bool {
        is_file_of(&self.path, self.n_bytes)
    }

    /// Whether bytes can stand there.
    pub(super) fn check_range(&self, at: u64, n: usize) -> Result<()> {
        let end = at.checked_add(n as u64);
        if end.is_some_and(|end| end <= self.n_bytes) {
            return Ok(());
        }
        let what = format!("`{}`: bytes beyond the planned end", self.path.display());
        Err(Error::Output(what.into()))
    }

    fn file(&self) -> MutexGuard<'_, Option<Arc<File>>> {
        self.file.lock().expect("no thread panics with an open file")
    }

    /// The part file, open for reading and writing.
    pub(super) fn open(&self) -> Result<Arc<File>> {
        let mut file = self.file();
        if let Some(open) = file.as_ref() {
            return Ok(open.clone());
        }
        if self.is_made() {
            // One that somebody has removed must not come back empty, nor another be written to.
            if !self.is_there() {
                return Err(self.lost());
            }
        } else {
            self.remove_leftover()?;
        }
        let open = Arc::new(open_part(&self.part)?);
        self.reserve(&open)?;
        *file = Some(open.clone());
        Ok(open)
    }

    /// Takes a part file that is open already.
    pub(super) fn adopt(&self, open: Arc<File>) -> Result<()> {
        self.reserve(&open)?;
        *self.file() = Some(open);
        Ok(())
    }

    /// Flushes what was written to disk. Others may go on writing: the file is not held meanwhile.
    pub(super) fn flush(&self) -> Result<()> {
        let open = self.file().clone();
        self.flush_file(open)
    }

    /// Flushes and closes it; a later write opens it again.
    pub(super) fn close(&self) -> Result<()> {
        let open = self.file().take();
        self.flush_file(open)
    }

    /// A flush that failed is not tried again: systems drop what they could not write, and tell it once. What was noted
    /// before is on disk; what came after must not be noted.
    fn flush_file(&self, open: Option<Arc<File>>) -> Result<()> {
        let mut failed = self.flushing.lock().expect("no thread panics with it");
        if let (None, Some(open)) = (*failed, open) {
            let e = open.sync_data().err();
            *failed = e.map(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO));
        }
        failed.map_or(Ok(()), |e| Err(self.failed(e.into())))
    }

    /// Gives a part file its size, with space on disk where the file system can promise it. Only then is it made: a
    /// journal must not speak of one that is short.
    fn reserve(&self, file: &File) -> Result<()> {
        let io = |e| self.failed(e);
        let id = FileId::new(&file.metadata().map_err(io)?);
        let known = *self.made();
        match known {
            None => file.set_len(0).map_err(io)?,
            Some(known) if known != id => return Err(self.lost()),
            Some(_) => {}
        }
        if file.metadata().map_err(io)?.len() != self.n_bytes {
            match allocate(file, self.n_bytes) {
                Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => return Err(self.failed(e.into())),
                _ => file.set_len(self.n_bytes).map_err(io)?,
            }
        }
        *self.made() = Some(id);
        Ok(())
    }

    /// Removes a part file of no run, rather than to empty it: another run may have it open.
    fn remove_leftover(&self) -> Result<()> {
        let found = open_own(&self.part, false).and_then(|_| std::fs::remove_file(&self.part));
        match found {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::Io {
                action: "create",
                path: self.part.clone(),
                source: e,
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn remove(&self) {
        drop(std::fs::remove_file(&self.part));
        *self.made() = None;
    }

    pub(super) fn lost(&self) -> Error {
        lost(&self.path, &self.part)
    }

    pub(super) fn failed(&self, e: io::Error) -> Error {
        disk_error(e, &self.path, None, Some(self.n_bytes))
    }
}

fn is_file_of(path: &Path, n_bytes: u64) -> bool {
    path.symlink_metadata()
        .is_ok_and(|m| m.is_file() && m.len() == n_bytes)
}

#[cfg(target_os = "linux")]
fn allocate(file: &File, n_bytes: u64) -> rustix::io::Result<()> {
    if n_bytes == 0 {
        return Ok(());
    }
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, n_bytes)
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &File, _: u64) -> rustix::io::Result<()> {
    Err(Errno::NOSYS)
}

/// Opens or makes a part file.
pub(super) fn open_part(part: &Path) -> Result<File> {
    open_own(part, true).map_err(|source| Error::Io {
        action: "create",
        path: part.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_cannot_have_its_size_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::new(&(folder.path().join("out"), u64::MAX));
        output.open().unwrap_err();
        assert!(!output.is_made());
    }

    #[test]
    fn a_flush_that_failed_does_not_pass_later() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::new(&(folder.path().join("out"), 100));
        let part = output.open().unwrap();
        output.flush().unwrap();
        // The kernel has nothing to flush a null device to.
        *output.file() = Some(Arc::new(File::open("/dev/null").unwrap()));
        let first = output.flush().unwrap_err().to_string();
        assert!(first.contains("Invalid argument"), "{first}");
        for file in [Some(part.clone()), None] {
            *output.file() = file;
            assert_eq!(output.flush().unwrap_err().to_string(), first);
            assert_eq!(output.close().unwrap_err().to_string(), first);
        }
        output.open().unwrap();
        assert_eq!(output.close().unwrap_err().to_string(), first);
    }
}
