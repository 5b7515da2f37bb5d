//! Outputs of a long run: written in any order, under their names only when all are complete, and such that a later
//! run can continue where one was stopped.
//!
//! Output `NAME` is `.NAME.part` in its folder until it is complete. `.NAME.journal` beside the first output says what
//! the run does (a digest) and how much of it is on disk for sure; it is written after the data it speaks of. A run
//! that ends with an error removes all of that, unless it was asked to be resumable; one that is killed leaves it. The
//! first part file is locked while a run is at work, so that no two write the same output.

mod journal;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::atomic::{self, NO_FOLLOW, check_folder, check_room, check_target, disk_error, folder_of};
use crate::digest::Digest;
use crate::{Error, Result};

use journal::{Done, Journal};

/// Bytes of a name that go into the names of what stands beside it; a longer one is cut and gets a digest, because
/// all must stay below the usual limit of 255.
const NAME_BYTES: usize = 200;

const OTHER_PLAN: &str = "is left from a run with another source, importance matrix or options: repeat those, or pass \
     `--force` without `--resume` to start over";
const STOPPED: &str =
    "is left from a run that was stopped: pass `--resume` to continue it, or `--force` to start over";

/// What is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Final names and sizes; at least one.
    pub outputs: &'a [(PathBuf, u64)],
    /// Files that are read and must not be written to.
    pub inputs: &'a [&'a Path],
    /// Whether files that are there under the final names are replaced, and what is left of a run discarded.
    pub force: bool,
    /// Whether to continue what is left of a run, and to leave something to continue from after an error.
    pub resume: bool,
    /// Digest of all that decides the bytes of the outputs.
    pub plan: Digest,
}

/// How much of a run is done already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing.
    New,
    /// This many of the caller's units, from the first: what [`Outputs::checkpoint`] was last told.
    At(u64),
    /// Every byte; only [`Outputs::publish`] is left to do.
    Complete,
}

/// The outputs of a run. Dropped without [`Outputs::publish`] they vanish, unless the run is resumable.
#[derive(Debug)]
pub struct Outputs {
    files: Vec<Output>,
    journal: PathBuf,
    plan: Digest,
    force: bool,
    /// Whether part files stay when this is dropped.
    keep: bool,
    /// Held for the lock on the first part file.
    _lock: Arc<File>,
}

#[derive(Debug)]
struct Output {
    path: PathBuf,
    part: PathBuf,
    n_bytes: u64,
    /// Open from the first write to the checkpoint that closes it.
    file: Mutex<Option<Arc<File>>>,
}

impl Outputs {
    /// Whether [`Outputs::start`] would go on, without touching anything.
    ///
    /// # Errors
    /// By the rules of [`crate::atomic::AtomicFile::create`] for each output, and too little space for all; another
    /// run that is writing the same; what is left of a run that was stopped, unless `resume` or `force`; with
    /// `resume`, what is left of a run with another plan.
    pub fn check(request: &Request<'_>) -> Result<Start> {
        let first = first_output(request)?;
        let is_new = first.part.symlink_metadata().is_err();
        state(request, &first, is_new)
    }

    /// Starts or continues a run.
    ///
    /// # Errors
    /// As of [`Outputs::check`].
    pub fn start(request: &Request<'_>) -> Result<(Self, Start)> {
        Self::check(request)?;
        let files: Vec<Output> = request.outputs.iter().map(Output::new).collect::<Result<_>>()?;
        let (lock, is_new) = lock(&files[0].part)?;
        // Again, now that no other run can change it.
        let start = state(request, &files[0], is_new).inspect_err(|_| {
            if is_new {
                files[0].remove();
            }
        })?;
        let this = Self {
            journal: files[0].journal(),
            plan: request.plan,
            force: request.force,
            keep: request.resume,
            _lock: lock.clone(),
            files,
        };
        match start {
            // The first output is renamed last, so all have their names.
            Start::Complete if is_new => this.files[0].remove(),
            Start::Complete => {}
            Start::At(_) => this.files[0].adopt(lock)?,
            Start::New => {
                this.files.iter().skip(1).for_each(Output::remove);
                remove(&this.journal);
                lock.set_len(0).map_err(|e| this.files[0].failed(e))?;
                this.files[0].adopt(lock)?;
            }
        }
        Ok((this, start))
    }

    /// Writes bytes of an output; those never written are zero.
    ///
    /// # Errors
    /// A full disk, with the numbers that explain it.
    pub fn write_at(&self, output: usize, at: u64, bytes: &[u8]) -> Result<()> {
        let output = &self.files[output];
        let end = at.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > output.n_bytes) {
            let what = format!("`{}`: bytes beyond the planned end", output.path.display());
            return Err(Error::Output(what.into()));
        }
        let file = output.open()?;
        file.write_all_at(bytes, at).map_err(|e| output.failed(e))
    }

    /// Reads bytes of an output back.
    ///
    /// # Errors
    /// A failed read.
    pub fn read_at(&self, output: usize, at: u64, bytes: &mut [u8]) -> Result<()> {
        let output = &self.files[output];
        output
            .open()?
            .read_exact_at(bytes, at)
            .map_err(|source| Error::Io {
                action: "read back",
                path: output.part.clone(),
                source,
            })
    }

    /// Flushes an output to disk and closes it; a later write opens it again.
    pub fn close(&self, output: usize) -> Result<()> {
        self.files[output].close()
    }

    /// Flushes what was written to disk and notes that the first `done` of the caller's units are there. Outputs for
    /// which `closed` is true are written no more.
    pub fn checkpoint(&self, done: u64, closed: &dyn Fn(usize) -> bool) -> Result<()> {
        self.flush(closed)?;
        self.note(Done::Part(done))
    }

    /// Flushes all to disk and gives the outputs their names.
    ///
    /// # Errors
    /// A file that got one of the names meanwhile, unless `force`: outputs that have their names already keep them, and
    /// a run with `resume` can give the others theirs.
    pub fn publish(mut self) -> Result<()> {
        self.files.iter().try_for_each(Output::create)?;
        self.flush(&|_| true)?;
        self.note(Done::Complete)?;
        self.keep = true;
        // The first one comes last: while it has its part name, others may.
        let (first, others) = self.files.split_first().expect("a run has an output");
        for output in others.iter().chain([first]) {
            match output.part.symlink_metadata() {
                Ok(_) if self.force => atomic::rename_over(&output.part, &output.path)?,
                Ok(_) => atomic::rename_new(&output.part, &output.path)?,
                // A run before this one did that.
                Err(_) => {}
            }
        }
        let mut synced: Vec<&Path> = self.files.iter().map(|o| folder_of(&o.path)).collect();
        synced.dedup();
        synced.into_iter().try_for_each(atomic::sync_folder)?;
        remove(&self.journal);
        Ok(())
    }

    fn flush(&self, closed: &dyn Fn(usize) -> bool) -> Result<()> {
        for (i, output) in self.files.iter().enumerate() {
            if closed(i) {
                output.close()?;
            } else if let Some(open) = output.file().as_ref() {
                open.sync_data().map_err(|e| output.failed(e))?;
            }
        }
        Ok(())
    }

    fn note(&self, done: Done) -> Result<()> {
        let plan = self.plan;
        Journal { plan, done }.write(&self.journal)
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        if !self.keep {
            self.files.iter().for_each(Output::remove);
            remove(&self.journal);
        }
    }
}

impl Output {
    fn new((path, n_bytes): &(PathBuf, u64)) -> Result<Self> {
        // The file behind a symbolic link is the one that is replaced.
        let path = match path.symlink_metadata() {
            Ok(meta) if meta.is_symlink() => path.canonicalize().map_err(|source| Error::Io {
                action: "open",
                path: path.clone(),
                source,
            })?,
            _ => path.clone(),
        };
        Ok(Self {
            part: beside(&path, "part"),
            path,
            n_bytes: *n_bytes,
            file: Mutex::new(None),
        })
    }

    fn journal(&self) -> PathBuf {
        beside(&self.path, "journal")
    }

    fn file(&self) -> MutexGuard<'_, Option<Arc<File>>> {
        self.file.lock().expect("no thread panics with an open file")
    }

    fn open(&self) -> Result<Arc<File>> {
        let mut file = self.file();
        if let Some(open) = file.as_ref() {
            return Ok(open.clone());
        }
        let open = Arc::new(open_part(&self.part)?);
        self.reserve(&open)?;
        *file = Some(open.clone());
        Ok(open)
    }

    fn close(&self) -> Result<()> {
        match self.file().take() {
            Some(open) => open.sync_data().map_err(|e| self.failed(e)),
            None => Ok(()),
        }
    }

    /// Takes a file that is open already.
    fn adopt(&self, open: Arc<File>) -> Result<()> {
        self.reserve(&open)?;
        *self.file() = Some(open);
        Ok(())
    }

    /// Makes an output without bytes of the caller's, if neither it nor its final file is there.
    fn create(&self) -> Result<()> {
        if self.part.symlink_metadata().is_ok() || self.path.symlink_metadata().is_ok() {
            return Ok(());
        }
        self.open().map(drop)
    }

    /// Gives a part file its size, with space on disk where the file system can promise it.
    fn reserve(&self, file: &File) -> Result<()> {
        let len = file.metadata().map_err(|e| self.failed(e))?.len();
        if len == self.n_bytes {
            return Ok(());
        }
        match allocate(file, self.n_bytes) {
            Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(self.failed(e.into())),
            _ => file.set_len(self.n_bytes).map_err(|e| self.failed(e)),
        }
    }

    fn remove(&self) {
        remove(&self.part);
    }

    fn failed(&self, e: io::Error) -> Error {
        disk_error(e, &self.path, None, Some(self.n_bytes))
    }
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

fn first_output(request: &Request<'_>) -> Result<Output> {
    let first = request.outputs.first();
    Output::new(first.ok_or_else(|| Error::Output("no output is asked for".into()))?)
}

/// How much is done, if the run may go on. `is_new`: whether no run before this one made the first part file.
fn state(request: &Request<'_>, first: &Output, is_new: bool) -> Result<Start> {
    let journal = first.journal();
    let found = if request.resume {
        Journal::read(&journal)?
    } else {
        None
    };
    if found.is_none_or(|j| j.done != Done::Complete) {
        check_outputs(request)?;
    }
    let refuse = |why: &str| {
        let (path, part) = (first.path.display(), first.part.display());
        Error::Output(format!("cannot write `{path}`: `{part}` {why}").into())
    };
    let is_left = !is_new || journal.symlink_metadata().is_ok();
    match found {
        Some(journal) if journal.plan != request.plan => Err(refuse(OTHER_PLAN)),
        Some(journal) => Ok(match journal.done {
            Done::Part(n) => Start::At(n),
            Done::Complete => Start::Complete,
        }),
        None if is_left && !request.resume && !request.force => Err(refuse(STOPPED)),
        None => Ok(Start::New),
    }
}

/// Checks what can be checked before anything is written.
fn check_outputs(request: &Request<'_>) -> Result<()> {
    let file_limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let mut needed: Vec<(&Path, &Path, u64)> = Vec::new();
    for (path, n_bytes) in request.outputs {
        let target = check_target(path, request.force, request.inputs)?;
        let folder = folder_of(&target);
        check_folder(&target, folder)?;
        check_room(&target, folder, *n_bytes, file_limit)?;
        // What is there of a part file already needs no more space.
        let have = beside(&target, "part")
            .symlink_metadata()
            .map_or(0, |m| m.blocks() * 512);
        let more = n_bytes.saturating_sub(have);
        let folder = folder_of(path);
        match needed.iter_mut().find(|(_, known, _)| *known == folder) {
            Some((.., sum)) => *sum = sum.saturating_add(more),
            None => needed.push((path, folder, more)),
        }
    }
    needed
        .into_iter()
        .try_for_each(|(path, folder, sum)| check_room(path, folder, sum, u64::MAX))
}

/// Opens the first part file and locks it; also whether it is new.
fn lock(part: &Path) -> Result<(Arc<File>, bool)> {
    loop {
        let is_new = part.symlink_metadata().is_err();
        let file = open_part(part)?;
        match file.try_lock() {
            Err(std::fs::TryLockError::WouldBlock) => {
                let what = format!(
                    "`{}`: another run is writing it; wait for its end",
                    part.display()
                );
                return Err(Error::Output(what.into()));
            }
            // File systems without locks: as good as it gets.
            Ok(()) | Err(std::fs::TryLockError::Error(_)) => {}
        }
        // The run that had the lock may have given the file its final name since.
        let same = match (file.metadata(), part.symlink_metadata()) {
            (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        };
        if same {
            return Ok((Arc::new(file), is_new));
        }
    }
}

/// Opens or makes a part file: a regular file that has no other name.
fn open_part(part: &Path) -> Result<File> {
    let io = |source| Error::Io {
        action: "create",
        path: part.to_owned(),
        source,
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(NO_FOLLOW)
        .open(part)
        .map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    if meta.is_file() && meta.nlink() <= 1 {
        return Ok(file);
    }
    let what = format!(
        "`{}`: expected a regular file with no other name: remove it",
        part.display()
    );
    Err(Error::Output(what.into()))
}

fn remove(path: &Path) {
    drop(std::fs::remove_file(path));
    drop(std::fs::remove_file(atomic::journal_part(path)));
}

/// `.NAME.KIND` beside a file.
fn beside(path: &Path, kind: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut short = name[..name.floor_char_boundary(NAME_BYTES)].to_owned();
    if short.len() < name.len() {
        let digest = Digest::of(name.as_bytes()).to_string();
        short.push_str(&digest[..16]);
    }
    folder_of(path).join(format!(".{short}.{kind}"))
}

#[cfg(test)]
mod tests;
