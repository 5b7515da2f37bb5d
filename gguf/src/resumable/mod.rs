//! Outputs of a long run: written in any order, under their names only when all are complete, and such that a later
//! run can continue where one was stopped.
//!
//! Output `NAME` is `.NAME.part` in its folder until it is complete. `.NAME.journal` beside the first output says what
//! the run does (a digest), how much of it is on disk for sure, and which part files that is in; it is written after
//! the data it speaks of, and removed before them. A run that ends with an error removes all of that, unless it was
//! asked to be resumable; one that is killed leaves it. The first part file is locked while a run is at work, so that
//! no two write the same output.

mod journal;
mod output;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use crate::atomic::{
    self, BUSY, check_folder, check_free, check_limit, check_target, folder_of, refuse, refuse_link,
};
use crate::digest::Digest;
use crate::{Error, Result};

use journal::{Done, Journal};
use output::{Output, open_part};

const OTHER_PLAN: &str = "is left from a run with another source, importance matrix or options: repeat those, or pass \
     `--force` without `--resume` to start over";
const STOPPED: &str =
    "is left from a run that was stopped: pass `--resume` to continue it, or `--force` to start over";
const LOST: &str =
    "speaks of files that are not there any more: pass `--force` without `--resume` to start over";

/// What is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Final names and sizes; at least one.
    pub outputs: &'a [(PathBuf, u64)],
    /// Whether the program made the names: then none may be a symbolic link.
    pub derived: bool,
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
    /// Whether every byte was there from the start, and some outputs may have their names.
    is_complete: bool,
    /// Held for the lock on the first part file.
    lock: Arc<File>,
}

impl Outputs {
    /// Whether [`Outputs::start`] would go on, without touching anything.
    ///
    /// # Errors
    /// By the rules of [`crate::atomic::AtomicFile::create`] for each output, and too little space for all; another
    /// run that is writing the same; what is left of a run that was stopped, unless `resume` or `force`; with
    /// `resume`, what is left of a run with another plan, or without its files.
    pub fn check(request: &Request<'_>) -> Result<Start> {
        let files = outputs(request)?;
        let first = &files[0].part;
        let is_new = match atomic::read_own(first) {
            Ok(file) if matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)) => {
                return Err(refuse(&files[0].path, BUSY));
            }
            Ok(file) => is_new(&file),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => true,
            Err(source) => {
                return Err(Error::Io {
                    action: "open",
                    path: first.clone(),
                    source,
                });
            }
        };
        state(request, &files, is_new)
    }

    /// Whether anything of a run stands beside the first output.
    pub fn is_left(request: &Request<'_>) -> bool {
        request.outputs.first().map(Output::new).is_some_and(|first| {
            [first.journal(), first.part]
                .iter()
                .any(|path| path.symlink_metadata().is_ok())
        })
    }

    /// Whether a path is that of an output or of what stands beside it while the run is at work.
    pub fn uses(request: &Request<'_>, path: &Path) -> bool {
        let place = |path: &Path| {
            (
                folder_of(path).canonicalize().ok(),
                path.file_name().map(ToOwned::to_owned),
            )
        };
        let wanted = place(path);
        request.outputs.iter().map(Output::new).any(|o| {
            let mut beside = atomic::KINDS.iter().map(|kind| atomic::beside(&o.path, kind));
            place(&o.path) == wanted || beside.any(|p| place(&p) == wanted)
        })
    }

    /// Starts or continues a run.
    ///
    /// # Errors
    /// As of [`Outputs::check`].
    pub fn start(request: &Request<'_>) -> Result<(Self, Start)> {
        Self::check(request)?;
        let files = outputs(request)?;
        let (lock, is_new) = lock(&files[0])?;
        // Again, now that no other run can change it.
        let start = state(request, &files, is_new).inspect_err(|_| {
            if is_new {
                files[0].remove();
            }
        })?;
        let this = Self {
            journal: files[0].journal(),
            plan: request.plan,
            force: request.force,
            keep: request.resume,
            is_complete: start == Start::Complete,
            lock: lock.clone(),
            files,
        };
        match start {
            // The first output is renamed last, so all have their names.
            Start::Complete if is_new => this.files[0].remove(),
            Start::Complete => {}
            Start::At(_) => this.files[0].adopt(lock)?,
            Start::New => {
                this.remove_journal()?;
                this.files.iter().skip(1).for_each(Output::remove);
                this.files[0].adopt(lock)?;
                // From here on another plan is told from this one.
                this.note(Done::Part(0), this.made())?;
            }
        }
        Ok((this, start))
    }

    /// Writes bytes of an output; those never written are zero.
    ///
    /// # Errors
    /// A full disk, with the numbers that explain it.
    pub fn write_at(&self, output: usize, at: u64, bytes: &[u8]) -> Result<()> {
        let file = &self.files[output];
        file.check_range(at, bytes.len())?;
        let open = self.open(output)?;
        open.write_all_at(bytes, at).map_err(|e| file.failed(e))
    }

    /// Reads bytes of an output back.
    ///
    /// # Errors
    /// A failed read.
    pub fn read_at(&self, output: usize, at: u64, bytes: &mut [u8]) -> Result<()> {
        let file = &self.files[output];
        file.check_range(at, bytes.len())?;
        let open = self.open(output)?;
        open.read_exact_at(bytes, at).map_err(|source| Error::Io {
            action: "read back",
            path: file.part.clone(),
            source,
        })
    }

    fn open(&self, output: usize) -> Result<Arc<File>> {
        // Another run may have begun its own.
        if !self.files[output].is_made() && !self.is_ours() {
            return Err(self.files[0].lost());
        }
        self.files[output].open()
    }

    /// Flushes what was written to disk, beside writes that go on: what is there early need not be waited for at the end.
    pub fn flush(&self) -> Result<()> {
        self.files.iter().try_for_each(Output::flush)
    }

    /// Flushes an output to disk and closes it; a later write opens it again.
    pub fn close(&self, output: usize) -> Result<()> {
        self.files[output].close()
    }

    /// Flushes what was written to disk and notes that the first `done` of the caller's units are there. Outputs for
    /// which `closed` is true are written no more.
    ///
    /// # Errors
    /// A flush that fails: from then on every flush of that output does, and nothing more is noted. A note that cannot be
    /// written; a first part file that is not the run's any more.
    pub fn checkpoint(&self, done: u64, closed: &dyn Fn(usize) -> bool) -> Result<()> {
        // Before the data is flushed: what another thread makes meanwhile has nothing yet that counts as done.
        let made = self.made();
        for (i, output) in self.files.iter().enumerate() {
            if closed(i) {
                output.close()?;
            } else {
                output.flush()?;
            }
        }
        self.note(Done::Part(done), made)
    }

    /// Flushes all to disk and gives the outputs their names.
    ///
    /// # Errors
    /// A file that got one of the names meanwhile, unless `force`: outputs that have their names already keep them, and
    /// a run with `resume` can give the others theirs.
    pub fn publish(mut self) -> Result<()> {
        if !self.is_complete {
            for i in 0..self.files.len() {
                self.open(i)?;
                self.files[i].close()?;
            }
            self.note(Done::Complete, self.made())?;
        }
        // The first one comes last: while it has its part name, others may.
        let (first, others) = self.files.split_first().expect("a run has an output");
        let mut left = Vec::new();
        for output in others.iter().chain([first]) {
            if output.is_there() {
                left.push(output);
            } else if !(self.is_complete && output.is_published()) {
                return Err(output.lost());
            }
        }
        self.keep = true;
        for output in left {
            atomic::rename(&output.part, &output.path, self.force)?;
        }
        let mut folders: Vec<&Path> = self.files.iter().map(|o| folder_of(&o.path)).collect();
        folders.dedup();
        folders.into_iter().try_for_each(atomic::sync_folder)?;
        self.remove_journal()
    }

    /// Whether a later run can continue this one if it ends with an error.
    pub fn is_resumable(&self) -> bool {
        self.keep
    }

    fn made(&self) -> Vec<bool> {
        self.files.iter().map(Output::is_made).collect()
    }

    fn note(&self, done: Done, made: Vec<bool>) -> Result<()> {
        if !self.is_ours() {
            return Err(self.files[0].lost());
        }
        let plan = self.plan;
        Journal { plan, done, made }.write(&self.journal)
    }

    /// Whether the first part file is still the one that this run has locked: somebody may have removed it by hand, and
    /// another run have begun since.
    fn is_ours(&self) -> bool {
        atomic::is_at(&self.lock, &self.files[0].part)
    }

    /// Removes the journal for good: it must not come back beside files that are not what it says.
    fn remove_journal(&self) -> Result<()> {
        drop(std::fs::remove_file(atomic::journal_part(&self.journal)));
        if std::fs::remove_file(&self.journal).is_ok() {
            return atomic::sync_folder(folder_of(&self.journal));
        }
        Ok(())
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        // Where the journal cannot be removed, the part files are what it says.
        if !self.keep && self.is_ours() && self.remove_journal().is_ok() {
            self.files.iter().for_each(Output::remove);
        }
    }
}

fn outputs(request: &Request<'_>) -> Result<Vec<Output>> {
    if request.outputs.is_empty() {
        return Err(Error::Output("no output is asked for".into()));
    }
    Ok(request.outputs.iter().map(Output::new).collect())
}

/// How much is done, if the run may go on; marks the outputs whose part files belong to it. `is_new`: whether no run
/// before this one wrote to the first part file.
fn state(request: &Request<'_>, files: &[Output], is_new: bool) -> Result<Start> {
    let journal_path = files[0].journal();
    let found = if request.resume {
        Journal::read(&journal_path, files.len())?
    } else {
        None
    };
    if found.as_ref().is_none_or(|j| j.done != Done::Complete) {
        check_outputs(request, files)?;
    }
    let is_left = !is_new || journal_path.symlink_metadata().is_ok();
    let left = if is_new { &journal_path } else { &files[0].part };
    let refuse = |left: &Path, why: &str| {
        let (path, left) = (files[0].path.display(), left.display());
        Error::Output(format!("cannot write `{path}`: `{left}` {why}").into())
    };
    let Some(journal) = found else {
        let is_in_the_way = is_left && !request.resume && !request.force;
        return if is_in_the_way {
            Err(refuse(left, STOPPED))
        } else {
            Ok(Start::New)
        };
    };
    if journal.plan != request.plan {
        return Err(refuse(left, OTHER_PLAN));
    }
    for (i, (file, &made)) in files.iter().zip(&journal.made).enumerate() {
        let there = match journal.done {
            Done::Part(_) => !made || (file.is_whole() && !(i == 0 && is_new)),
            Done::Complete => file.is_whole() || file.is_published(),
        };
        if !there {
            return Err(refuse(&journal_path, LOST));
        }
        file.set_made(made);
    }
    Ok(match journal.done {
        Done::Part(0) => Start::New,
        Done::Part(n) => Start::At(n),
        Done::Complete => Start::Complete,
    })
}

/// Checks what can be checked before anything is written.
fn check_outputs(request: &Request<'_>, files: &[Output]) -> Result<()> {
    let file_limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let mut needed: Vec<(&Path, &Path, u64)> = Vec::new();
    for ((path, n_bytes), file) in request.outputs.iter().zip(files) {
        if request.derived {
            refuse_link(path)?;
        }
        check_target(path, request.force, request.inputs)?;
        let folder = folder_of(&file.path);
        check_folder(&file.path, folder)?;
        check_limit(&file.path, *n_bytes, file_limit)?;
        // What is there of a part file already needs no more space.
        let more = n_bytes.saturating_sub(file.allotted());
        match needed.iter_mut().find(|(_, known, _)| *known == folder) {
            Some((.., sum)) => *sum = sum.saturating_add(more),
            None => needed.push((&file.path, folder, more)),
        }
    }
    needed
        .into_iter()
        .try_for_each(|(path, folder, sum)| check_free(path, folder, sum))
}

/// Opens the first part file and locks it; also whether no run before this one wrote to it.
fn lock(first: &Output) -> Result<(Arc<File>, bool)> {
    loop {
        if let Some(locked) = try_lock(first)? {
            return Ok(locked);
        }
    }
}

/// One try; `None` if the run that had the lock has given the file its final name since.
fn try_lock(first: &Output) -> Result<Option<(Arc<File>, bool)>> {
    let file = open_part(&first.part)?;
    match file.try_lock() {
        Err(std::fs::TryLockError::WouldBlock) => return Err(refuse(&first.path, BUSY)),
        // File systems without locks: as good as it gets.
        Ok(()) | Err(std::fs::TryLockError::Error(_)) => {}
    }
    if !atomic::is_at(&file, &first.part) {
        return Ok(None);
    }
    let is_new = is_new(&file);
    Ok(Some((Arc::new(file), is_new)))
}

/// Whether no run wrote to a locked part file: whoever makes one locks it, and it has its size before a journal speaks of
/// it.
fn is_new(file: &File) -> bool {
    file.metadata().is_ok_and(|m| m.len() == 0)
}

#[cfg(test)]
mod tests;
