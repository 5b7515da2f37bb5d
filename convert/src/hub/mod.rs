//! Which folder a checkpoint's name stands for: a folder, a repository in the local cache of the hub, or its id.

mod cache;
#[cfg(feature = "hub")]
mod download;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::Result;
use crate::error::Error;

use cache::Repository;

/// The revision that an id without one stands for.
const MAIN: &str = "main";

/// The id of a repository on the hub: `ORG/NAME`, or `ORG/NAME@REVISION`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RepoId {
    org: String,
    name: String,
    revision: String,
}

impl FromStr for RepoId {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let (id, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let (org, name) = id.split_once('/').ok_or(())?;
        let sound = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
                && !part.contains("--")
                && !part.contains("..")
        };
        // Revisions are names of branches, which may have folders, or numbers of commits.
        let is_revision = revision.split('/').all(sound);
        if !sound(org) || !sound(name) || !is_revision {
            return Err(());
        }
        Ok(Self {
            org: org.to_owned(),
            name: name.to_owned(),
            revision: revision.to_owned(),
        })
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.org, self.name)?;
        if self.revision == MAIN {
            return Ok(());
        }
        write!(f, "@{}", self.revision)
    }
}

/// The folder of a checkpoint: `model` itself if it is one, the snapshot of a repository's folder in a cache, or that
/// of an id in the local cache. With `download` what the cache lacks of an id is fetched.
///
/// # Errors
/// Neither a folder nor an id; a repository that is not in the cache; a download that fails.
pub(crate) fn locate(model: &Path, download: bool, quiet: bool) -> Result<PathBuf> {
    if model.exists() {
        return cache::snapshot_of_folder(model);
    }
    let id: Option<RepoId> = model.to_str().and_then(|text| text.parse().ok());
    let Some(id) = id else {
        let why = "there is none, and the id of a repository has the form `ORG/NAME` or `ORG/NAME@REVISION`";
        return Err(Error::io("open", model, why));
    };
    let cache = cache::folder().ok_or_else(|| {
        let why = "neither `HF_HUB_CACHE`, `HF_HOME` nor `HOME` says where the hub's cache is";
        Error::io("find", model, why)
    })?;
    let repository = Repository::new(&cache, &id);
    if download {
        return fetch(&id, &repository, quiet);
    }
    repository.snapshot(&id.revision).ok_or_else(|| {
        let how = "pass `--download` to fetch it, or give a folder";
        let why = format!("`{}` does not have it: {how}", repository.folder().display());
        Error::io("find", Path::new(&id.to_string()), why)
    })
}

#[cfg(feature = "hub")]
fn fetch(id: &RepoId, repository: &Repository, quiet: bool) -> Result<PathBuf> {
    download::Download::new(id, repository)?.run(quiet)
}

#[cfg(not(feature = "hub"))]
fn fetch(_: &RepoId, _: &Repository, _: bool) -> Result<PathBuf> {
    Err(Error::unsupported(
        "`--download`",
        "this program was built without feature `hub`",
    ))
}

#[cfg(test)]
mod tests {
    use super::RepoId;

    #[test]
    fn ids_have_two_parts_and_perhaps_a_revision() {
        let id = |text: &str| text.parse::<RepoId>().map(|id| (id.to_string(), id.revision));
        let main = |text: &str| Ok((text.to_owned(), "main".to_owned()));
        assert_eq!(id("Qwen/Qwen3-0.6B"), main("Qwen/Qwen3-0.6B"));
        assert_eq!(id("a/b@main"), main("a/b"));
        assert_eq!(id("a/b@pr/1"), Ok(("a/b@pr/1".to_owned(), "pr/1".to_owned())));
        for not in [
            "a", "a/b/c", "./a", "../a/b", "/a", "a/", "a/..", "a/b@", "a/b@../c", "a b/c", "~/a", "a--b/c",
            "a/.b",
        ] {
            assert!(id(not).is_err(), "{not}");
        }
    }
}
