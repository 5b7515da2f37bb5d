//! Outputs that appear under their name only when complete.
//!
//! The data goes to a hidden file in the same folder, `.NAME.new`, which is flushed to disk and renamed at the end. A
//! program that stops midway leaves nothing under the final name, a mapped older file keeps its pages, and two programs
//! that write the same output cannot mix their bytes: the file is locked, and the second program is refused. What a
//! killed one leaves is not locked; the next run of the same output replaces it.

mod inputs;
mod own;
mod part;

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::digest::Digest;
use crate::{Error, Result, split};

pub use inputs::of_checkpoint;
pub use own::open_own;
pub(crate) use own::read_own;
pub(crate) use part::{FileId, is_at};
use part::{Others, Part};

/// Bytes that are gathered before a write.
const BUFFER: usize = 1 << 20;

/// Bytes of the final name that go into the names of what stands beside it, which must stay below the usual limit of 255.
const PART_NAME_BYTES: usize = 200;

/// Bytes of a name where the file system does not tell its limit.
const USUAL_NAME_MAX: usize = 255;

pub(crate) const BUSY: &str = "another run is writing it: wait for its end";

/// A file being written beside its final name. Dropped without [`AtomicFile::commit`] it vanishes.
#[derive(Debug)]
pub struct AtomicFile {
    /// In front of the file, whose lock keeps the name this run's until it is removed.
    part: Part,
    file: BufWriter<File>,
    path: PathBuf,
    folder: PathBuf,
    force: bool,
    /// Bytes of the whole output, where known.
    n_bytes: Option<u64>,
    written: u64,
    /// Largest file that this process may write.
    file_limit: u64,
}

impl AtomicFile {
    /// Checks that several outputs can be written at once, into one folder: each by the rules of
    /// [`AtomicFile::create`], and the free space for all together. `outputs` are names and bytes.
    pub fn check_all(outputs: &[(PathBuf, u64)], force: bool, inputs: &[&Path]) -> Result<()> {
        let file_limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        for (path, n_bytes) in outputs {
            let path = check_target(path, force, inputs)?;
            let folder = folder_of(&path);
            check_folder(&path, folder)?;
            check_room(&path, folder, *n_bytes, file_limit)?;
        }
        let total = outputs
            .iter()
            .fold(0_u64, |n, (_, bytes)| n.saturating_add(*bytes));
        match outputs.first() {
            Some((path, _)) => check_room(path, folder_of(path), total, u64::MAX),
            None => Ok(()),
        }
    }

    /// As [`AtomicFile::check_all`], for names that the program makes of one that the user gave: none may be a symbolic
    /// link, behind which could be any file.
    pub fn check_derived(outputs: &[(PathBuf, u64)], force: bool, inputs: &[&Path]) -> Result<()> {
        outputs.iter().try_for_each(|(path, _)| refuse_link(path))?;
        Self::check_all(outputs, force, inputs)
    }

    /// Starts an output. Refuses a missing folder, a name that the file system cannot hold, an output that is one of
    /// `inputs` (by path, symbolic or hard link; a shard stands for its set, a folder for the model or checkpoint in it),
    /// an existing output unless `force`, an output that another run is writing, and, if `n_bytes` is known, too little
    /// free space.
    pub fn create(path: &Path, force: bool, inputs: &[&Path], n_bytes: Option<u64>) -> Result<Self> {
        Self::start(path, force, inputs, n_bytes, Others::Refuse)
    }

    /// As [`AtomicFile::create`], for a name that the program makes of the one that the user gave: see
    /// [`AtomicFile::check_derived`].
    pub fn create_derived(path: &Path, force: bool, inputs: &[&Path], n_bytes: Option<u64>) -> Result<Self> {
        refuse_link(path)?;
        Self::create(path, force, inputs, n_bytes)
    }

    /// Starts an output that several programs may write at once, as a cache that they share: whichever is complete last
    /// has the name. What was there is replaced.
    pub fn create_shared(path: &Path, inputs: &[&Path]) -> Result<Self> {
        Self::start(path, true, inputs, None, Others::Allow)
    }

    fn start(
        path: &Path,
        force: bool,
        inputs: &[&Path],
        n_bytes: Option<u64>,
        others: Others,
    ) -> Result<Self> {
        let path = check_target(path, force, inputs)?;
        let folder = folder_of(&path).to_owned();
        check_folder(&path, &folder)?;
        let file_limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if let Some(needed) = n_bytes {
            check_room(&path, &folder, needed, file_limit)?;
        }
        let (part, file) = part::create(&path, others)?;
        // The run that had the name until now may have just given its output the final one.
        if !force && path.symlink_metadata().is_ok() {
            return Err(exists(&path));
        }
        Ok(Self {
            part,
            file: BufWriter::with_capacity(BUFFER, file),
            path,
            folder,
            force,
            n_bytes,
            written: 0,
            file_limit,
        })
    }

    /// The final name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether somebody has removed the file under its part name and another run has begun the same output since: what
    /// stands beside that output is the other run's.
    pub fn is_replaced(&self) -> bool {
        self.part.is_replaced()
    }

    /// Says how many bytes the output will have, where that was not known when it was started.
    ///
    /// # Errors
    /// Too little room for them.
    pub fn expect(&mut self, n_bytes: u64) -> Result<()> {
        check_room(&self.path, &self.folder, n_bytes, self.file_limit)?;
        self.n_bytes = Some(n_bytes);
        Ok(())
    }

    /// Gives the output these permissions in place of the usual ones.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let file = self.file.get_ref();
        file.set_permissions(permissions)
            .map_err(|e| write_error(e, &self.path))
    }

    /// Appends bytes `range` of a file, which the kernel copies where it can. Returns how many of them: fewer, also
    /// none, where it cannot.
    pub(crate) fn copy_from(&mut self, file: &File, range: &Range<u64>) -> Result<u64> {
        let n = range.end - range.start;
        if self.file_limit - self.written < n {
            return Err(self.failed(io::ErrorKind::FileTooLarge.into()));
        }
        if let Err(e) = self.file.flush() {
            return Err(self.failed(e));
        }
        let mut at = range.start;
        while at < range.end {
            let piece = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            match copy_in_kernel(file, &mut at, self.file.get_ref(), piece) {
                Err(Errno::INTR) => {}
                Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => return Err(self.failed(e.into())),
                Ok(0) | Err(_) => break,
                Ok(n) => self.written += n as u64,
            }
        }
        Ok(at - range.start)
    }

    /// Flushes to disk and renames to the final name.
    pub fn commit(self) -> Result<()> {
        self.complete()?.publish()
    }

    /// Flushes to disk and closes the file, which has its part name still.
    pub fn complete(mut self) -> Result<Complete> {
        if let Err(e) = self.file.flush() {
            return Err(self.failed(e));
        }
        let (file, _) = self.file.into_parts();
        // Behind the file, so that the name goes before the lock.
        let part = self.part;
        file.sync_all().map_err(|e| write_error(e, &self.path))?;
        Ok(Complete {
            part,
            file: Some(file),
            path: self.path,
            folder: self.folder,
            force: self.force,
        })
    }

    fn failed(&self, e: io::Error) -> Error {
        let flushed = self.written - self.file.buffer().len() as u64;
        disk_error(e, &self.path, Some(flushed), self.n_bytes)
    }
}

/// An output whose bytes are all on disk, under the part name. Dropped without [`Complete::publish`] it vanishes.
#[derive(Debug)]
pub struct Complete {
    part: Part,
    /// Open for its lock.
    file: Option<File>,
    path: PathBuf,
    folder: PathBuf,
    force: bool,
}

impl Complete {
    /// Where the bytes are until they are published.
    pub fn part(&self) -> &Path {
        self.part.path()
    }

    /// Closes the file, and with that gives up its lock: for the outputs of a set behind the first, whose lock serves
    /// for all, since a process may have few files open.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    /// Renames to the final name.
    pub fn publish(self) -> Result<()> {
        let (part, path) = (self.part.path(), &self.path);
        if !self.part.is_there() {
            return Err(lost(path, part));
        }
        rename(part, path, self.force)?;
        sync_folder(&self.folder)
    }
}

#[cfg(target_os = "linux")]
fn copy_in_kernel(from: &File, at: &mut u64, to: &File, n: usize) -> rustix::io::Result<usize> {
    rustix::fs::copy_file_range(from, Some(at), to, None, n)
}

#[cfg(not(target_os = "linux"))]
fn copy_in_kernel(_: &File, _: &mut u64, _: &File, _: usize) -> rustix::io::Result<usize> {
    Err(Errno::NOSYS)
}

/// The name under which [`write_journal`] writes: one that a later run knows, so that a stop leaves no file for ever.
pub(crate) fn journal_part(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    part.into()
}

/// Writes a small file that the same program reads again, in place of one that is there. The caller keeps others
/// from doing the same.
pub(crate) fn write_journal(path: &Path, bytes: &[u8]) -> Result<()> {
    let part = journal_part(path);
    let mut file = open_own(&part, true).map_err(|e| disk_error(e, path, None, None))?;
    let mut write = || {
        file.set_len(0)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        rustix::fs::rename(&part, path)?;
        Ok(())
    };
    if let Err(e) = write() {
        drop(std::fs::remove_file(&part));
        return Err(disk_error(e, path, None, None));
    }
    sync_folder(folder_of(path))
}

/// Renames to a name that nothing has, or if `replace` one that a file may have.
pub(crate) fn rename(part: &Path, path: &Path, replace: bool) -> Result<()> {
    if replace {
        return rustix::fs::rename(part, path).map_err(|e| rename_error(e, path));
    }
    rename_new(part, path)
}

fn rename_error(e: Errno, path: &Path) -> Error {
    Error::Io {
        action: "rename to",
        path: path.to_owned(),
        source: e.into(),
    }
}

/// Renames to a name that nothing has.
pub(crate) fn rename_new(part: &Path, path: &Path) -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, part, CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => return Err(exists(path)),
            Err(Errno::INVAL | Errno::NOSYS) => {}
            Err(e) => return Err(rename_error(e, path)),
        }
    }
    // Where the system cannot do it in one step.
    match rustix::fs::link(part, path) {
        Ok(()) => {
            drop(std::fs::remove_file(part));
            return Ok(());
        }
        Err(Errno::EXIST) => return Err(exists(path)),
        Err(_) => {}
    }
    if path.symlink_metadata().is_ok() {
        return Err(exists(path));
    }
    rustix::fs::rename(part, path).map_err(|e| rename_error(e, path))
}

/// Flushes a folder to disk: a new, renamed or removed name is there only then.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| write_error(e, folder))
}

/// The folder that a file stands in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Write for AtomicFile {
    /// An error carries an [`Error`] inside, which [`Error::from_write`] takes out again.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        // Beyond this limit the system would end the process instead of reporting an error.
        if self.file_limit - self.written < buf.len() as u64 {
            let source = io::Error::from(io::ErrorKind::FileTooLarge);
            return Err(io::Error::other(self.failed(source)));
        }
        match self.file.write(buf) {
            Ok(n) => {
                self.written += n as u64;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Err(e),
            Err(e) => Err(io::Error::other(self.failed(e))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|e| io::Error::other(self.failed(e)))
    }
}

/// The error for a failed write, with the numbers that explain a full disk: bytes written and needed, where known.
pub(crate) fn disk_error(e: io::Error, path: &Path, written: Option<u64>, needed: Option<u64>) -> Error {
    let why = match e.kind() {
        io::ErrorKind::StorageFull => "the disk is full",
        io::ErrorKind::QuotaExceeded => "the disk quota is used up",
        io::ErrorKind::FileTooLarge => "the file is larger than this process may write",
        _ => return write_error(e, path),
    };
    let bytes = match (written, needed) {
        (Some(n), Some(needed)) => format!(" after {n} of {needed} bytes"),
        (Some(n), None) => format!(" after {n} bytes"),
        (None, Some(needed)) => format!(", {needed} bytes are needed"),
        (None, None) => String::new(),
    };
    let free = free_bytes(folder_of(path)).map_or(String::new(), |n| format!(", {n} are free"));
    write_error(io::Error::new(e.kind(), format!("{why}{bytes}{free}")), path)
}

fn write_error(source: io::Error, path: &Path) -> Error {
    Error::Io {
        action: "write",
        path: path.to_owned(),
        source,
    }
}

pub(crate) fn refuse(path: &Path, why: &str) -> Error {
    Error::Output(format!("cannot write `{}`: {why}", path.display()).into())
}

/// What has the bytes of an output is not there any more when that is complete.
pub(crate) fn lost(path: &Path, part: &Path) -> Error {
    let why = format!(
        "its bytes were in `{}`, which somebody has removed or replaced: run it again, and leave that file alone",
        part.display()
    );
    refuse(path, &why)
}

fn exists(path: &Path) -> Error {
    refuse(path, "it exists already: pass `--force` to replace it")
}

/// Refuses a symbolic link under a name that the user did not give.
///
/// # Errors
/// A symbolic link.
pub fn refuse_link(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_symlink() => Err(refuse(
            path,
            "it is a symbolic link: remove it, or name it as the output",
        )),
        _ => Ok(()),
    }
}

/// Refuses a name that only a folder can have, which a finished file could not be renamed to.
pub(crate) fn check_file_name(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_bytes();
    if path.file_name().is_none() || bytes.ends_with(b"/.") {
        return Err(refuse(path, "it names a folder: give a file name"));
    }
    if bytes.ends_with(b"/") && path.symlink_metadata().is_err() {
        // Without the slash.
        let is_file = path.components().as_path().symlink_metadata().is_ok();
        return Err(refuse(
            path,
            if is_file {
                "it names a folder, but that is a file: leave out the `/` at its end"
            } else {
                "it names a folder, which does not exist: create it, or give a file name"
            },
        ));
    }
    Ok(())
}

/// Checks what stands under the output's name, and returns the name to write to: that of the file behind a
/// symbolic link.
pub(crate) fn check_target(path: &Path, force: bool, inputs: &[&Path]) -> Result<PathBuf> {
    let path = target(path, force, inputs)?;
    // A run would take such an input for a file of its own, and empty or remove it.
    refuse_among(&path, KINDS.map(|kind| beside(&path, kind)), inputs)?;
    Ok(path)
}

fn target(path: &Path, force: bool, inputs: &[&Path]) -> Result<PathBuf> {
    check_file_name(path)?;
    if split::is_unfinished(path) {
        let why = "a merge to it was stopped, which may have the only copy of shards: go on with \
                   `gguf-inspect merge --in-place-safe --resume`, or choose another name";
        return Err(refuse(path, why));
    }
    if path.symlink_metadata().is_err() {
        return Ok(path.to_owned());
    }
    let Ok(meta) = path.metadata() else {
        return Err(refuse(path, "it is a symbolic link to nothing: remove it"));
    };
    if let Some(input) = inputs::input_of(&meta, inputs) {
        let why = format!(
            "it is the same file as the input `{}`: choose another name",
            input.display()
        );
        return Err(refuse(path, &why));
    }
    if meta.is_dir() {
        return Err(refuse(path, "it is a folder: give a file name"));
    }
    if !meta.is_file() {
        return Err(refuse(path, "it is not a regular file: give another name"));
    }
    if !force {
        return Err(exists(path));
    }
    path.canonicalize().map_err(|source| Error::Io {
        action: "open",
        path: path.to_owned(),
        source,
    })
}

/// Refuses an output if an input has one of these names, which are of files that a run makes beside it.
pub(crate) fn refuse_among(
    path: &Path,
    names: impl IntoIterator<Item = PathBuf>,
    inputs: &[&Path],
) -> Result<()> {
    for part in names {
        let Ok(meta) = part.metadata() else { continue };
        if let Some(input) = inputs::input_of(&meta, inputs) {
            let why = format!(
                "the input `{}` has the name of what stands beside the output until that is complete: rename the input, \
                 or choose another output",
                input.display()
            );
            return Err(refuse(path, &why));
        }
    }
    Ok(())
}

/// A name that is too long would otherwise be refused only when the finished file is renamed to it.
fn check_name(path: &Path, folder: &Path) -> Result<()> {
    let n_bytes = path.file_name().map_or(0, |name| name.as_bytes().len());
    let max = rustix::fs::statvfs(folder)
        .ok()
        .and_then(|stat| usize::try_from(stat.f_namemax).ok())
        .filter(|&n| n > 0)
        .unwrap_or(USUAL_NAME_MAX);
    if n_bytes > max {
        let why = format!(
            "the name has {n_bytes} bytes, but names in `{}` have {max} at most: choose a shorter one",
            folder.display()
        );
        return Err(refuse(path, &why));
    }
    Ok(())
}

pub(crate) fn check_folder(path: &Path, folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        let why = match folder.symlink_metadata() {
            Ok(_) => format!("`{}` is no folder: give another one", folder.display()),
            Err(_) => format!("the folder `{}` does not exist: create it", folder.display()),
        };
        return Err(refuse(path, &why));
    }
    if let Err(e) = rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        let e = io::Error::from(e);
        let why = format!(
            "nothing can be written in `{}`: {e}: give another folder",
            folder.display()
        );
        return Err(refuse(path, &why));
    }
    check_name(path, folder)
}

fn check_room(path: &Path, folder: &Path, needed: u64, file_limit: u64) -> Result<()> {
    check_limit(path, needed, file_limit)?;
    check_free(path, folder, needed)
}

/// Whether this process may write a file of so many bytes.
pub(crate) fn check_limit(path: &Path, needed: u64, file_limit: u64) -> Result<()> {
    if needed > file_limit {
        let why = format!("needs {needed} bytes, but this process may write files of {file_limit} at most");
        return Err(refuse(path, &why));
    }
    Ok(())
}

/// Whether a folder has room for so many more bytes.
pub(crate) fn check_free(path: &Path, folder: &Path, needed: u64) -> Result<()> {
    match free_bytes(folder) {
        Some(free) if free < needed => {
            let why = format!("needs {needed} bytes, but `{}` has {free} free", folder.display());
            Err(refuse(path, &why))
        }
        _ => Ok(()),
    }
}

/// Bytes free for this user in the file system of a folder, where the system tells.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

/// What follows `.NAME.` in the names of files that may stand beside an output until it is complete.
pub(crate) const KINDS: [&str; 4] = [NEW, PART, JOURNAL, "journal.part"];
pub(crate) const NEW: &str = "new";
pub(crate) const PART: &str = "part";
pub(crate) const JOURNAL: &str = "journal";

/// `.NAME.KIND` beside a file.
pub(crate) fn beside(path: &Path, kind: &str) -> PathBuf {
    folder_of(path).join(format!("{}.{kind}", hidden(path)))
}

/// `.NAME`, the begin of the names of what stands beside a file while it is written, so that a person knows what it
/// belongs to. Names that are too long or no text get a digest instead of what cannot be shown.
pub(crate) fn hidden(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    let text = name.to_string_lossy();
    let mut short = format!(".{}", &text[..text.floor_char_boundary(PART_NAME_BYTES)]);
    if short.as_bytes()[1..] != *name.as_bytes() {
        let digest = Digest::of(name.as_bytes()).to_string();
        short.push_str(&digest[..16]);
    }
    short
}
