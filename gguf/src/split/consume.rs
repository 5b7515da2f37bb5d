//! A merge that needs little space: each shard is deleted once its data is proved to be in the merged file.
//!
//! The merged file grows as `.OUT.merge-part` beside its name: the whole head first, then shard after shard. For each
//! one: copy, flush, read again and compare by SHA-256, record the shard in `.OUT.merge-journal`, delete it. What a
//! stop at any moment leaves is therefore the shards that are not recorded, and the part file with all others; the
//! same call goes on from there. Nothing in the journal is trusted where a shard is deleted: the shard's own
//! bytes are compared with those in the part file right before.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};

use super::journal::Journal;
use super::unfinished::beside;
use super::{ShardName, plan};
use crate::atomic::{
    check_file_name, check_folder, folder_of, free_bytes, is_at, journal_part, open_own, rename_new,
    sync_folder,
};
use crate::digest::{self, Digest};
use crate::pairs::Pairs;
use crate::{Error, GgufFile, OpenOptions, Result, TensorInfo, copy, key, source};

/// How far a merge has come. Shards count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The head is on disk, and a journal that records no shard.
    Started,
    /// So many more bytes were copied or compared.
    Bytes(u64),
    /// A shard's data is on disk and was compared.
    Proved(u32),
    /// The journal says so.
    Recorded(u32),
    /// The shard is deleted.
    Deleted(u32),
    /// The merged file has its name.
    Renamed,
}

/// Bytes beside the data that a merge needs for a while: journals, and rounding to blocks of the disk.
const MARGIN: u64 = 1 << 20;

/// A merge that consumes its shards: planned, or found unfinished.
#[derive(Debug)]
pub struct Consume {
    out: PathBuf,
    /// Folder and name of the shards, up to the numbers.
    shards: ShardName,
    journal: Journal,
    /// The merged file's head; `None` where an earlier run has written it.
    head: Option<Vec<u8>>,
    /// Bytes of a part file that was there without a journal when the merge was planned.
    part_bytes: u64,
    extra: u64,
}

/// Bytes of a file; 0 if there is none.
fn n_bytes(path: &Path) -> u64 {
    path.symlink_metadata().map_or(0, |m| m.len())
}

fn refuse(path: &Path, why: &str) -> Error {
    Error::Output(format!("cannot merge to `{}`: {why}", path.display()).into())
}

fn io<'a>(action: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> Error + 'a {
    move |source| Error::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

impl Consume {
    /// Plans a merge of a complete set. Nothing is written.
    ///
    /// # Errors
    /// A model that is no split set or not sound, an output that exists, too little space: the largest shard's data
    /// must fit beside the set, all of it if the output lies on another file system.
    pub fn plan(set: &GgufFile, out: &Path) -> Result<Self> {
        set.require_sound()?;
        let Some(shards) =
            ShardName::parse(set.path()).filter(|n| n.count as usize == set.parts().len() && n.count > 1)
        else {
            let why = format!(
                "`{}` is no split set: there is nothing to merge",
                set.path().display()
            );
            return Err(refuse(out, &why));
        };
        check_file_name(out)?;
        if out.symlink_metadata().is_ok() {
            return Err(refuse(out, "it exists already: choose another name"));
        }
        check_folder(out, folder_of(out))?;
        refuse_more_metadata(set)?;
        let layout = plan::merged(set)?;
        let data_start = layout.head.len() as u64;
        let end_of = |i: usize| {
            layout
                .tensors
                .get(i)
                .map_or(layout.total_bytes, |t| data_start + t.offset)
        };
        let ends: Vec<u64> = set.parts().iter().map(|part| end_of(part.tensors.end)).collect();
        let extra = extra_bytes(set, &ends, data_start, folder_of(out))?;
        if let Some(free) = free_bytes(folder_of(out))
            && free < extra
        {
            let why = format!(
                "needs {extra} free bytes, but `{}` has {free}",
                folder_of(out).display()
            );
            return Err(refuse(out, &why));
        }
        let prefix = shards
            .prefix()
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        if prefix.contains('\n') {
            return Err(refuse(out, "the shards' name has a line break: rename them"));
        }
        let journal = Journal {
            prefix: prefix.to_owned(),
            head_bytes: data_start,
            head_sha256: Digest::of(&layout.head),
            tensors: set.parts().iter().map(|part| part.tensors.end as u64).collect(),
            ends,
            done: 0,
        };
        Ok(Self {
            out: out.to_owned(),
            shards,
            journal,
            head: Some(layout.head),
            part_bytes: beside(out, "merge-part").map_or(0, |part| n_bytes(&part)),
            extra,
        })
    }

    /// Takes up a merge that was stopped. `folder` has the shards that are left.
    ///
    /// # Errors
    /// A journal that is damaged or does not fit the part file, names beside `shards` that are not of this merge.
    pub fn resume(out: &Path, folder: &Path) -> Result<Self> {
        check_file_name(out)?;
        let path = beside(out, "merge-journal").ok_or_else(|| refuse(out, "it names a folder"))?;
        let journal = Journal::read(&path)?;
        let count = u32::try_from(journal.ends.len()).expect("at most MAX_SHARDS");
        let shards = ShardName::new(&folder.join(&journal.prefix), 1, count);
        let merge = Self {
            out: out.to_owned(),
            shards,
            journal,
            head: None,
            part_bytes: 0,
            extra: 0,
        };
        // Without a part file it is the merged file that has the name.
        if beside(out, "merge-part").is_some_and(|part| n_bytes(&part) > 0) {
            merge.check_name()?;
        }
        Ok(merge)
    }

    /// The shards, those included that are deleted already.
    pub fn shards(&self) -> Vec<PathBuf> {
        (1..=self.count()).map(|no| self.shards.path(no)).collect()
    }

    /// Tensors of the merged file.
    pub fn n_tensors(&self) -> usize {
        let n = self.journal.tensors.last().copied().unwrap_or(0);
        usize::try_from(n).unwrap_or(usize::MAX)
    }

    /// Shards that are merged already.
    pub fn n_done(&self) -> u32 {
        self.journal.done
    }

    /// Free bytes that the merge needs at its worst moment.
    pub fn extra_bytes(&self) -> u64 {
        self.extra
    }

    /// Bytes of the merged file.
    pub fn total_bytes(&self) -> u64 {
        self.journal
            .ends
            .last()
            .copied()
            .unwrap_or(self.journal.head_bytes)
    }

    /// Bytes that [`Step::Bytes`] adds up to: those still to copy, and the same again to compare.
    pub fn work_bytes(&self) -> u64 {
        let done = self.journal.done;
        2 * (self.total_bytes()
            - if done == 0 {
                self.journal.head_bytes
            } else {
                self.end(done)
            })
    }

    fn count(&self) -> u32 {
        self.shards.count
    }

    /// Where the data of shard `no` ends in the merged file; of shard 0, the head.
    fn end(&self, no: u32) -> u64 {
        match no.checked_sub(1) {
            Some(i) => self.journal.ends[i as usize],
            None => self.journal.head_bytes,
        }
    }

    /// The tensors of shard `no`, as indices of the merged file's.
    fn tensors(&self, no: u32) -> Range<usize> {
        let n = |no: u32| {
            let n = no.checked_sub(1).map_or(0, |i| self.journal.tensors[i as usize]);
            usize::try_from(n).unwrap_or(usize::MAX)
        };
        n(no - 1)..n(no)
    }

    /// Merges. Each shard is deleted when its data is proved to be on disk in the merged file. `on` hears of each
    /// step; an error of its own ends the work there and leaves everything as it stands at that moment, as a crash
    /// would.
    ///
    /// # Errors
    /// A shard that changed or is missing, a disk that gives other bytes than were written, a part file that does
    /// not fit the journal. What is there stays there, and a later call goes on.
    pub fn run(mut self, on: &mut dyn FnMut(Step) -> Result<()>) -> Result<()> {
        let (Some(part_path), Some(journal_path)) = (
            beside(&self.out, "merge-part"),
            beside(&self.out, "merge-journal"),
        ) else {
            return Err(refuse(&self.out, "it names a folder"));
        };
        if self.head.is_none() {
            self.read_again(&journal_path)?;
            if self.is_renamed(&part_path)? {
                return finish(&journal_path, on);
            }
        }
        let part = self.open_part(&part_path, &journal_path)?;
        if let Some(head) = self.head.take() {
            let written = part.set_len(0).and_then(|()| part.write_all_at(&head, 0));
            written
                .and_then(|()| part.sync_all())
                .map_err(io("write", &part_path))?;
            self.journal.write(&journal_path)?;
        }
        self.check_name()?;
        on(Step::Started)?;
        let merged = self.check_part(&part_path)?;
        for no in 1..=self.count() {
            self.consume(no, &merged, (&part, &part_path), &journal_path, on)?;
        }
        part.sync_all().map_err(io("write", &part_path))?;
        self.check_name()?;
        rename_new(&part_path, &self.out)?;
        sync_folder(folder_of(&self.out))?;
        finish(&journal_path, on)
    }

    /// Moves one shard, unless an earlier run did.
    fn consume(
        &mut self,
        no: u32,
        merged: &GgufFile,
        (part, part_path): (&File, &Path),
        journal_path: &Path,
        on: &mut dyn FnMut(Step) -> Result<()>,
    ) -> Result<()> {
        let path = self.shards.path(no);
        let recorded = no <= self.journal.done;
        if path.symlink_metadata().is_err() {
            if recorded {
                return Ok(());
            }
            let why = format!("shard {no} is missing: expected `{}`", path.display());
            return Err(refuse(&self.out, &why));
        }
        let shard = OpenOptions::new().alone().open(&path)?;
        self.check_shard(no, &shard, merged)?;
        let range = self.end(no - 1)..self.end(no);
        if !recorded {
            part.set_len(range.start).map_err(io("write", part_path))?;
        }
        let mut at = range.start;
        let hash = self.read_shard(no, &shard, merged, |bytes| {
            if !recorded {
                part.write_all_at(bytes, at).map_err(io("write", part_path))?;
            }
            at += bytes.len() as u64;
            on(Step::Bytes(bytes.len() as u64))
        })?;
        if !recorded {
            part.sync_all().map_err(io("write", part_path))?;
            forget(part, &range);
        }
        if sha256(part_path, range, on)? != hash {
            let why = format!(
                "the data of `{}` is not what `{}` has: nothing more is deleted; check the disk, or move the shard \
                 away if it is another one",
                path.display(),
                part_path.display()
            );
            return Err(refuse(&self.out, &why));
        }
        on(Step::Proved(no))?;
        if !recorded {
            self.journal.done = no;
            self.journal.write(journal_path)?;
            on(Step::Recorded(no))?;
        }
        self.check_name()?;
        std::fs::remove_file(&path).map_err(io("remove", &path))?;
        sync_folder(folder_of(&path))?;
        on(Step::Deleted(no))
    }

    /// Refuses to go on where something else has the merged file's name: nobody should look for the only copy of
    /// deleted shards under another one.
    fn check_name(&self) -> Result<()> {
        if self.out.symlink_metadata().is_err() {
            return Ok(());
        }
        let why = "another file has this name: move it away, then go on with `gguf-inspect merge --in-place-safe \
                   --resume`";
        Err(refuse(&self.out, why))
    }

    /// Reads a shard's part of the merged file, tensors and padding, and returns its SHA-256.
    fn read_shard(
        &self,
        no: u32,
        shard: &GgufFile,
        merged: &GgufFile,
        mut f: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Digest> {
        let mut hash = Sha256::new();
        for (i, tensor) in self.tensors(no).zip(&shard.tensors) {
            copy::pieces(shard.first().source(), shard.tensor_range(tensor), |bytes| {
                hash.update(bytes);
                f(bytes)
            })?;
            let padding = copy::zeros(self.room(merged, i) - tensor.n_bytes);
            hash.update(&padding);
            f(&padding)?;
        }
        Ok(Digest(hash.finalize().into()))
    }

    /// Bytes of a tensor in the merged file with its padding.
    fn room(&self, merged: &GgufFile, i: usize) -> u64 {
        let end = merged
            .tensors
            .get(i + 1)
            .map_or(self.total_bytes() - self.journal.head_bytes, |t| t.offset);
        end.saturating_sub(merged.tensors[i].offset)
    }

    /// Proves that a shard is the one that the merged file has room for.
    fn check_shard(&self, no: u32, shard: &GgufFile, merged: &GgufFile) -> Result<()> {
        shard.require_sound()?;
        let keys = shard.first().split;
        let range = self.tensors(no);
        let alignment = merged.first().alignment;
        let same = |(i, b): (usize, &TensorInfo)| {
            let a = &merged.tensors[i];
            (&a.name, a.shape, a.type_id) == (&b.name, b.shape, b.type_id)
                && b.n_bytes.checked_next_multiple_of(alignment) == Some(self.room(merged, i))
        };
        let sound = (keys.no, keys.count) == (Some(u64::from(no - 1)), Some(u64::from(self.count())))
            && shard.tensors.len() == range.len()
            && range.zip(&shard.tensors).all(same)
            && (no > 1 || plan::merged_pairs(shard)? == Pairs::of(merged)?);
        if sound {
            return Ok(());
        }
        let why = format!(
            "`{}` is not the shard that the merge began with: it is left as it is; put the right one there",
            shard.path().display()
        );
        Err(refuse(&self.out, &why))
    }

    /// Parses the head in the part file and proves that it is the journal's.
    fn check_part(&self, path: &Path) -> Result<GgufFile> {
        let merged = OpenOptions::new().alone().open(path)?;
        let Journal {
            head_bytes,
            head_sha256,
            tensors,
            ends,
            done,
            ..
        } = &self.journal;
        let source = merged.first().source();
        let ends_fit = tensors.iter().zip(ends).all(|(&n, &end)| {
            let tensor = usize::try_from(n).ok().and_then(|i| merged.tensors.get(i));
            let start = tensor.map_or(self.total_bytes(), |t| head_bytes.saturating_add(t.offset));
            n <= merged.tensors.len() as u64 && start == end
        });
        let sound = merged.first().data_offset == *head_bytes
            && tensors.last() == Some(&(merged.tensors.len() as u64))
            && ends_fit
            && source.len() >= self.end(*done)
            && digest::of_source(source, 0..*head_bytes, &mut |_| Ok(()))? == *head_sha256;
        if sound {
            return Ok(merged);
        }
        let why = format!(
            "`{}` does not fit its journal: nothing was changed; what is left of the shards is whole",
            path.display()
        );
        Err(refuse(&self.out, &why))
    }

    /// Opens the part file, keeps other merges away from it, and proves that what was planned by still holds.
    fn open_part(&mut self, path: &Path, journal_path: &Path) -> Result<File> {
        let fresh = self.head.is_some();
        let part = open_own(path, fresh).map_err(io("open", path))?;
        flock(&part, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| refuse(&self.out, "another merge is at work on it"))?;
        if !is_at(&part, path) {
            return Err(refuse(&self.out, "another merge is at work on it"));
        }
        if fresh {
            self.check_fresh(path, journal_path).inspect_err(|_| {
                // Empty it is of no merge: the head comes before the journal.
                if n_bytes(path) == 0 {
                    drop(std::fs::remove_file(path));
                }
            })?;
        } else {
            self.read_again(journal_path)?;
        }
        Ok(part)
    }

    /// Refuses to begin where another merge has begun or ended since this one was planned: its part file may hold the
    /// only copy of shards that it has deleted.
    fn check_fresh(&self, path: &Path, journal_path: &Path) -> Result<()> {
        if self.out.symlink_metadata().is_ok() {
            return Err(refuse(
                &self.out,
                "another merge has made it: there is nothing to merge",
            ));
        }
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        let untouched = !is_there(journal_path)
            && n_bytes(path) == self.part_bytes
            && self.shards().iter().all(|shard| is_there(shard));
        if untouched {
            return Ok(());
        }
        let why = "another merge has begun since this one was planned: nothing was changed; run the command again, \
                   which goes on with it";
        Err(refuse(&self.out, why))
    }

    /// Reads the journal of an unfinished merge again: another run may have gone on with it.
    fn read_again(&mut self, path: &Path) -> Result<()> {
        let found = Journal::read(path)?;
        let same = Journal {
            done: self.journal.done,
            ..found.clone()
        };
        if same != self.journal {
            let why = "another merge has begun since this one was planned: nothing was changed; run the command again";
            return Err(refuse(&self.out, why));
        }
        self.journal = found;
        Ok(())
    }

    /// Whether the merged file has its name already, and only the journal is left.
    fn is_renamed(&self, part_path: &Path) -> Result<bool> {
        if n_bytes(part_path) > 0 || self.journal.done < self.count() || !self.out.is_file() {
            return Ok(false);
        }
        let source = source::open(&self.out)?;
        let head = self.journal.head_bytes;
        Ok(source.len() == self.total_bytes()
            && digest::of_source(&*source, 0..head, &mut |_| Ok(()))? == self.journal.head_sha256)
    }
}

/// The last step: nothing is left to go on with.
fn finish(journal: &Path, on: &mut dyn FnMut(Step) -> Result<()>) -> Result<()> {
    on(Step::Renamed)?;
    std::fs::remove_file(journal).map_err(io("remove", journal))?;
    // What a stop while the journal was written has left.
    drop(std::fs::remove_file(journal_part(journal)));
    sync_folder(folder_of(journal))
}

/// Free bytes that the merge needs at its worst moment: what is written before the shard it came from is deleted.
fn extra_bytes(set: &GgufFile, ends: &[u64], head_bytes: u64, folder: &Path) -> Result<u64> {
    let device = folder.metadata().map_err(io("open", folder))?.dev();
    let (mut freed, mut extra) = (0_u64, head_bytes);
    for (part, &end) in set.parts().iter().zip(ends) {
        extra = extra.max(end.saturating_sub(freed));
        let meta = part.path().symlink_metadata().map_err(io("open", part.path()))?;
        if meta.is_symlink() || meta.nlink() > 1 {
            let what = format!(
                "cannot merge in place: `{}` is a link, deleting it frees nothing (a download cache?); merge without \
                 `--in-place-safe`",
                part.path().display()
            );
            return Err(Error::Output(what.into()));
        }
        if meta.dev() == device {
            freed = freed.saturating_add(meta.len());
        }
    }
    Ok(extra.saturating_add(MARGIN))
}

/// Refuses shards behind the first with metadata that a merge would leave out and a deletion lose.
fn refuse_more_metadata(set: &GgufFile) -> Result<()> {
    for part in &set.parts()[1..] {
        let shard = OpenOptions::new().alone().open(part.path())?;
        let more = shard
            .metadata
            .iter()
            .find(|(key, _)| !key::SPLIT.contains(key) && *key != key::ALIGNMENT);
        if let Some((key, _)) = more {
            let what = format!(
                "cannot merge in place: `{}` has metadata of its own (`{key}`), which would be lost; merge without \
                 `--in-place-safe`",
                part.path().display()
            );
            return Err(Error::Output(what.into()));
        }
    }
    Ok(())
}

/// SHA-256 of a range of the part file, read from the disk again.
fn sha256(path: &Path, range: Range<u64>, on: &mut dyn FnMut(Step) -> Result<()>) -> Result<Digest> {
    let source = source::open(path)?;
    digest::of_source(&*source, range, &mut |n| on(Step::Bytes(n)))
}

/// Drops what the page cache has of a range, so that it is read from the disk.
#[cfg(target_os = "linux")]
fn forget(file: &File, range: &Range<u64>) {
    let n = std::num::NonZeroU64::new(range.end - range.start);
    // A hint: where it is not taken, the comparison reads the cache.
    let _ = rustix::fs::fadvise(file, range.start, n, rustix::fs::Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
fn forget(_: &File, _: &Range<u64>) {}
