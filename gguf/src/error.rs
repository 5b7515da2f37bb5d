//! What can go wrong with a container.

use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried: "open", "read", "write", "rename".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file breaks a rule of the format.
    #[error("{}", .0)]
    Malformed(Box<Malformed>),
    /// A metadata key is missing or of another type than needed.
    #[error("metadata key `{key}`: expected {expected}, found {found}")]
    Key {
        /// The key.
        key: Box<str>,
        /// The type or value that was needed.
        expected: Box<str>,
        /// What is there ("nothing" if absent).
        found: Box<str>,
    },
    /// The bytes of a source that computes them cannot be made of what it reads.
    #[error("{}", .0)]
    Computed(Box<str>),
    /// The output cannot be written as asked.
    #[error("{}", .0)]
    Output(Box<str>),
}

impl Error {
    /// A broken rule of `file` at byte `at`: `what` is one sentence without full stop.
    pub fn malformed(file: &Path, at: u64, what: impl Into<String>) -> Self {
        Self::Malformed(Box::new(Malformed {
            file: file.to_owned(),
            at,
            what: what.into(),
        }))
    }

    /// The error behind a failed write to `path`: the one an [`crate::atomic::AtomicFile`] wrapped, or the
    /// plain one with the path.
    pub fn from_write(e: io::Error, path: &Path) -> Self {
        match e.downcast::<Self>() {
            Ok(inner) => inner,
            Err(source) => Self::Io {
                action: "write",
                path: path.to_owned(),
                source,
            },
        }
    }
}

/// A broken rule: where, and what was expected.
#[derive(Debug)]
pub struct Malformed {
    /// The file, as the user named it.
    pub file: PathBuf,
    /// Byte position in the file where the object starts.
    pub at: u64,
    /// One sentence without full stop: object, expectation and finding.
    pub what: String,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` at byte {}: {}", self.file.display(), self.at, self.what)
    }
}
