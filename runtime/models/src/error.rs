//! What can go wrong with a model's description.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The container.
    #[error(transparent)]
    Container(#[from] gguf::Error),
    /// An architecture this build has no description of.
    #[error("unknown architecture `{found}`; known: {known}")]
    UnknownArchitecture {
        /// What the file or config says.
        found: Box<str>,
        /// Names of those known.
        known: Box<str>,
    },
    /// A hyper-parameter or tensor that does not fit the architecture.
    #[error("{object}: expected {expected}, found {found}")]
    Mismatch {
        /// The key, config path or tensor.
        object: Box<str>,
        /// What the architecture needs.
        expected: Box<str>,
        /// What is there.
        found: Box<str>,
    },
}

impl Error {
    /// A [`Error::Mismatch`] of anything that can be printed.
    pub fn mismatch(
        object: impl std::fmt::Display,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> Self {
        Self::Mismatch {
            object: object.to_string().into(),
            expected: expected.to_string().into(),
            found: found.to_string().into(),
        }
    }
}
