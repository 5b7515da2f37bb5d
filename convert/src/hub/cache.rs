//! The hub's local cache: `models--ORG--NAME` with `blobs/` (contents by their digest), `snapshots/COMMIT/` (links to
//! them by their names) and `refs/REVISION` (the commit that a name stands for).

use std::env::var_os;
use std::path::{Path, PathBuf};

use gguf::listed;

use super::{MAIN, RepoId};
use crate::Result;
use crate::error::Error;

const SNAPSHOTS: &str = "snapshots";

/// How many names a message lists.
const N_SHOWN: usize = 3;

/// Where the cache is, as the hub's own programs have it.
pub(super) fn folder() -> Option<PathBuf> {
    let of = |name: &str| var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    of("HF_HUB_CACHE").or_else(|| Some(home()?.join("hub")))
}

/// The hub's folder for all that is the user's, the cache among it.
pub(super) fn home() -> Option<PathBuf> {
    let of = |name: &str| var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    of("HF_HOME").or_else(|| {
        let caches = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")))?;
        Some(caches.join("huggingface"))
    })
}

/// A repository's folder in a cache.
#[derive(Debug)]
pub(super) struct Repository {
    folder: PathBuf,
}

impl Repository {
    pub(super) fn new(cache: &Path, id: &RepoId) -> Self {
        Self {
            folder: cache.join(format!("models--{}--{}", id.org, id.name)),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of a commit's files.
    pub(super) fn snapshot_folder(&self, commit: &str) -> PathBuf {
        self.folder.join(SNAPSHOTS).join(commit)
    }

    /// The file that says which commit a revision is.
    pub(super) fn reference(&self, revision: &str) -> PathBuf {
        self.folder.join("refs").join(revision)
    }

    /// The folder of a revision's files, if it is there.
    pub(super) fn snapshot(&self, revision: &str) -> Option<PathBuf> {
        let commit = gguf_cli::read_text(&self.reference(revision)).ok();
        let commit = commit.as_deref().map_or(revision, str::trim);
        let plain = !commit.is_empty() && commit.bytes().all(|b| b.is_ascii_alphanumeric());
        let folder = plain.then(|| self.snapshot_folder(commit))?;
        folder.is_dir().then_some(folder)
    }
}

/// A folder as it is or, if it is a repository's in a cache, the snapshot of its main revision, or the only one.
pub(super) fn snapshot_of_folder(folder: &Path) -> Result<PathBuf> {
    let snapshots = folder.join(SNAPSHOTS);
    if !snapshots.is_dir() || folder.join("config.json").exists() {
        return Ok(folder.to_owned());
    }
    let repository = Repository {
        folder: folder.to_owned(),
    };
    if let Some(main) = repository.snapshot(MAIN) {
        return Ok(main);
    }
    let entries = std::fs::read_dir(&snapshots).map_err(|e| Error::io("read", &snapshots, e))?;
    let mut there: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()).filter(|p| p.is_dir()))
        .collect();
    there.sort();
    match there.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Error::io(
            "convert",
            folder,
            "this repository of a cache has no snapshot",
        )),
        several => {
            let names: Vec<_> = several.iter().map(|p| format!("`{}`", p.display())).collect();
            let why = format!(
                "it has no main revision and several snapshots, give one: {}",
                listed(&names, N_SHOWN, ", ")
            );
            Err(Error::io("convert", folder, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "inputs of tests need no atomic writes")]
    fn a_repository_stands_for_its_main_snapshot() {
        let cache = tempfile::tempdir().expect("a folder");
        let id: RepoId = "org/name".parse().expect("an id");
        let repository = Repository::new(cache.path(), &id);
        let folder = repository.folder().to_owned();
        assert_eq!(repository.snapshot(MAIN), None);
        let make =
            |commit: &str| std::fs::create_dir_all(repository.snapshot_folder(commit)).expect("a folder");
        make("00aa");
        assert_eq!(
            snapshot_of_folder(&folder).ok(),
            Some(repository.snapshot_folder("00aa"))
        );
        make("11bb");
        let text = snapshot_of_folder(&folder).expect_err("two").to_string();
        assert!(text.contains("00aa") && text.contains("11bb"), "{text}");
        std::fs::create_dir_all(repository.reference("x").parent().expect("refs")).expect("a folder");
        std::fs::write(repository.reference(MAIN), "11bb\n").expect("a file");
        assert_eq!(
            snapshot_of_folder(&folder).ok(),
            Some(repository.snapshot_folder("11bb"))
        );
        assert_eq!(
            repository.snapshot("00aa"),
            Some(repository.snapshot_folder("00aa"))
        );
        assert_eq!(repository.snapshot("22cc"), None);
        std::fs::write(repository.reference(MAIN), "../../..").expect("a file");
        assert_eq!(repository.snapshot(MAIN), None);
    }
}
