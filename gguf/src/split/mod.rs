//! Split sets: a model in several files (shards) with names that end in `-00001-of-00003.gguf`.
//!
//! The first shard has all metadata; each carries `split.no` (from 0), `split.count` and `split.tensors.count`.
//! [`find`](in_folder) and the names say which files belong together, [`crate::validate`] whether their keys agree.

mod consume;
mod journal;
mod plan;
mod unfinished;
mod write;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

pub use consume::{Consume, Step};
pub use plan::{Limits, Shard, layouts, merged, plan, starts};
pub use unfinished::{is_unfinished, unfinished_of};
pub use write::{merge, outputs, write};

use crate::{Error, Metadata, Result, Value, key, source};

/// Most shards of a set: `split.count` is a u16.
pub const MAX_SHARDS: u32 = 65_535;

/// What the `split.*` keys of a file say, where they are there and no negative numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitKeys {
    /// `split.no`, from 0.
    pub no: Option<u64>,
    /// `split.count`.
    pub count: Option<u64>,
    /// `split.tensors.count`.
    pub tensors: Option<u64>,
}

impl SplitKeys {
    /// The keys of a file's metadata.
    pub fn of(metadata: &Metadata) -> Self {
        let uint = |key| metadata.get(key).and_then(Value::to_uint);
        Self {
            no: uint(key::SPLIT_NO),
            count: uint(key::SPLIT_COUNT),
            tensors: uint(key::SPLIT_TENSORS),
        }
    }

    /// Whether the file is one of several. A count of 1 or 0 (which a merge by llama.cpp leaves) is a whole model.
    pub fn is_shard(&self) -> bool {
        self.count.is_some_and(|n| n > 1)
    }

    /// The set's names, from the path of the shard with these keys; `None` if it is a whole model.
    pub(crate) fn siblings(&self, path: &Path) -> Result<Option<ShardName>> {
        if !self.is_shard() {
            return Ok(None);
        }
        let name = ShardName::parse(path);
        if name.is_none() {
            let no = self.no.map_or(0, |no| no.saturating_add(1));
            let count = self.count.unwrap_or(0);
            let what = format!(
                "shard {no} of {count} under another name: expected one that ends in `-{no:05}-of-{count:05}.gguf`; \
                 rename it so that the other shards can be found"
            );
            return Err(Error::malformed(path, 0, what));
        }
        Ok(name)
    }
}

/// The name of a shard, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardName {
    /// Folder and name up to the numbers.
    prefix: PathBuf,
    /// Number of the shard, from 1.
    pub no: u32,
    /// Shards of the set.
    pub count: u32,
}

impl ShardName {
    /// The name of shard `no` (from 1) of `count`, for a prefix like `folder/model`.
    pub fn new(prefix: &Path, no: u32, count: u32) -> Self {
        Self {
            prefix: prefix.to_owned(),
            no,
            count,
        }
    }

    /// Takes the path of a shard apart; `None` if it is not named like one.
    pub fn parse(path: &Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, no) = rest.rsplit_once('-')?;
        let number = |digits: &str| {
            let sound = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
            sound.then(|| digits.parse::<u32>().ok()).flatten()
        };
        let (no, count) = (number(no)?, number(count)?);
        (1..=count)
            .contains(&no)
            .then(|| Self {
                prefix: path.with_file_name(prefix),
                no,
                count,
            })
            .filter(|_| count <= MAX_SHARDS)
    }

    /// Folder and name up to the numbers.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The path of shard `no` (from 1) of the same set.
    pub fn path(&self, no: u32) -> PathBuf {
        let mut name = self.prefix.as_os_str().to_owned();
        name.push(format!("-{no:05}-of-{:05}.gguf", self.count));
        name.into()
    }
}

/// The file to open for a path: the path itself, or, if it is a folder, the model in it (the first shard that is
/// there). Projectors (`mmproj*`) are passed over.
///
/// # Errors
/// A folder without a model, or with several.
pub fn in_folder(path: &Path) -> Result<Cow<'_, Path>> {
    if source::is_url(path) || !path.is_dir() {
        return Ok(path.into());
    }
    let io = |action, source| Error::Io {
        action,
        path: path.to_owned(),
        source,
    };
    let list = |source| io("list", source);
    let choose = |what: String| io("choose a model in", std::io::Error::other(what));
    let mut names: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(list)? {
        let name = entry.map_err(list)?.path();
        let hidden = name
            .file_name()
            .and_then(|n| n.to_str())
            .is_some_and(|n| n.starts_with('.') || n.starts_with("mmproj"));
        if !hidden && name.extension().is_some_and(|e| e == "gguf") {
            names.push(name);
        }
    }
    names.sort();
    // One entry for each model: shards of a set stand together because they differ in the number only.
    names.dedup_by(|b, a| match (ShardName::parse(a), ShardName::parse(b)) {
        (Some(a), Some(b)) => (a.prefix, a.count) == (b.prefix, b.count),
        _ => false,
    });
    let front = |names: &[PathBuf]| {
        let names = names.iter().take(4).map(|n| format!("`{}`", n.display()));
        names.collect::<Vec<_>>().join(", ")
    };
    match names.as_slice() {
        [one] => Ok(one.clone().into()),
        [] => Err(choose(
            "the folder has no GGUF file: name a model, or a folder with one".to_owned(),
        )),
        several => Err(choose(format!(
            "the folder has {} models: name one of {}",
            several.len(),
            front(several)
        ))),
    }
}

/// The error for a set that is not complete.
pub(crate) fn missing(path: &Path, missing: &[PathBuf]) -> Error {
    let first = missing.iter().take(3).map(|p| format!("`{}`", p.display()));
    let more = if missing.len() > 3 { ", .." } else { "" };
    let what = format!(
        "the set is not complete, {} of its shards missing: {}{more}; {}",
        missing.len(),
        first.collect::<Vec<_>>().join(", "),
        remedy(missing)
    );
    Error::malformed(path, 0, what)
}

/// What to do about shards that are missing: a merge that was stopped has deleted those that it has.
pub(crate) fn remedy(missing: &[PathBuf]) -> &'static str {
    if unfinished::has_taken(missing) {
        "a merge of the set was stopped and has their data: go on with `gguf-inspect merge --in-place-safe --resume` \
         and a shard that is left"
    } else {
        "download them into the same folder"
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::ShardName;

    #[test]
    fn names_are_taken_apart_and_put_together() {
        let name = ShardName::parse(Path::new("d/m-00002-of-00003.gguf")).expect("a shard");
        assert_eq!((name.prefix(), name.no, name.count), (Path::new("d/m"), 2, 3));
        assert_eq!(name.path(3), Path::new("d/m-00003-of-00003.gguf"));
        for other in [
            "m.gguf",
            "m-2-of-3.gguf",
            "m-00000-of-00003.gguf",
            "m-00004-of-00003.gguf",
            "m-00001-of-00003.bin",
            "m-00001-of-99999.gguf",
            "-of-.gguf",
        ] {
            assert_eq!(ShardName::parse(Path::new(other)), None, "{other}");
        }
    }
}
