//! Merges that were stopped, as others come upon them.

use std::path::{Path, PathBuf};

use super::ShardName;
use super::journal::Journal;
use crate::atomic::folder_of;

/// Whether an unfinished merge to `out` was left behind.
pub fn is_unfinished(out: &Path) -> bool {
    beside(out, "merge-journal").is_some_and(|path| path.symlink_metadata().is_ok())
}

/// The output of an unfinished merge in the folder of a shard that is left of it.
pub fn unfinished_of(shard: &Path) -> Option<PathBuf> {
    journal_of(shard).map(|(out, _)| out)
}

/// Whether an unfinished merge has taken all these shards of a set.
pub(super) fn has_taken(shards: &[PathBuf]) -> bool {
    let journal = shards.first().and_then(|shard| journal_of(shard));
    let no = |path: &PathBuf| ShardName::parse(path).map_or(u32::MAX, |shard| shard.no);
    journal.is_some_and(|(_, journal)| shards.iter().all(|path| no(path) <= journal.done))
}

fn journal_of(shard: &Path) -> Option<(PathBuf, Journal)> {
    let shard = ShardName::parse(shard)?;
    let folder = folder_of(shard.prefix());
    let mut names = std::fs::read_dir(folder).ok()?.flatten().map(|e| e.file_name());
    names.find_map(|name| {
        let out = name
            .to_str()?
            .strip_prefix('.')?
            .strip_suffix(".merge-journal")?
            .to_owned();
        let journal = Journal::read(&folder.join(name)).ok()?;
        let same = shard.prefix().file_name().and_then(|n| n.to_str()) == Some(&journal.prefix)
            && shard.count as usize == journal.ends.len();
        same.then(|| (folder.join(out), journal))
    })
}

/// `.OUT.SUFFIX` beside the output.
pub(super) fn beside(out: &Path, suffix: &str) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(out.file_name()?);
    name.push(".");
    name.push(suffix);
    Some(out.with_file_name(name))
}
