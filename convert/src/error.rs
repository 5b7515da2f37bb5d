//! What can go wrong with a checkpoint.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("cannot {action} `{}`: {why}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why, and where possible what to do.
        why: Box<str>,
    },
    /// A JSON file that is not JSON, or not of the form that it must have.
    #[error("`{}` line {line} column {column}: {what}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// Column, counted from 1.
        column: usize,
        /// What is wrong there.
        what: Box<str>,
    },
    /// Something in the checkpoint is not as it must be.
    #[error("{object}: expected {expected}, found {found}")]
    Mismatch {
        /// The file, tensor, token or setting.
        object: Box<str>,
        /// What was needed.
        expected: Box<str>,
        /// What is there.
        found: Box<str>,
    },
    /// A weight that no model has, by tensor and place.
    #[error("{0}")]
    NotFinite(Box<str>),
    /// A weight that the output's type cannot hold, by tensor and place.
    #[error("{0}; `--keep-wide` keeps such tensors in the checkpoint's type")]
    TooLarge(Box<str>),
    /// Something that is sound but that this program cannot convert.
    #[error("{what} is not supported: {hint}")]
    Unsupported {
        /// What it is, with its name.
        what: Box<str>,
        /// What is supported, or what to do.
        hint: Box<str>,
    },
    /// A value on the command line.
    #[error("`{option}`: expected {expected}, found `{found}`")]
    Argument {
        /// The option, with its dashes.
        option: &'static str,
        /// What it takes.
        expected: Box<str>,
        /// What was given.
        found: Box<str>,
    },
    /// The output or a source file.
    #[error(transparent)]
    Container(#[from] gguf::Error),
    /// The architecture.
    #[error(transparent)]
    Model(gguf_models::Error),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path, why: impl Display) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            why: why.to_string().into(),
        }
    }

    pub(crate) fn mismatch(object: impl Display, expected: impl Display, found: impl Display) -> Self {
        Self::Mismatch {
            object: bounded(object),
            expected: expected.to_string().into(),
            found: bounded(found),
        }
    }

    pub(crate) fn argument(option: &'static str, expected: impl Display, found: &str) -> Self {
        Self::Argument {
            option,
            expected: expected.to_string().into(),
            found: found.escape_debug().to_string().into(),
        }
    }

    pub(crate) fn unsupported(what: impl Display, hint: impl Display) -> Self {
        Self::Unsupported {
            what: bounded(what),
            hint: hint.to_string().into(),
        }
    }
}

impl From<gguf_models::Error> for Error {
    fn from(e: gguf_models::Error) -> Self {
        match e {
            gguf_models::Error::Container(e) => Self::Container(e),
            e => Self::Model(e),
        }
    }
}

impl From<Error> for gguf_cli::Failure {
    fn from(e: Error) -> Self {
        match e {
            Error::Container(e) => e.into(),
            e @ (Error::Io { .. } | Error::Argument { .. }) => Self::Usage(e.to_string()),
            e => Self::Input(e.to_string()),
        }
    }
}

/// What a message says of the checkpoint, cut if that is long, so that its end is seen too: names may have any length.
fn bounded(text: impl Display) -> Box<str> {
    const MOST: usize = 500;
    gguf::cut(&text.to_string(), MOST).into()
}

/// The start of a text that a message quotes, which can be a whole file.
pub(crate) fn quoted(text: &str) -> String {
    const MOST: usize = 1000;
    let start = &text[..text.floor_char_boundary(MOST)];
    match text.len() {
        n if n > MOST => format!("`{start}..` of {n} bytes"),
        _ => format!("`{start}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_message_is_seen_whatever_the_checkpoint_says() {
        let long = "x".repeat(100_000);
        for e in [
            Error::unsupported(format!("method `{long}`"), "take another"),
            Error::mismatch(format!("tensor `{long}`"), "take another", &long),
        ] {
            let text = e.to_string();
            assert!(text.contains("take another") && text.len() < 1200, "{text}");
        }
        let short = Error::unsupported("method `x`", "take another");
        assert_eq!(short.to_string(), "method `x` is not supported: take another");
    }
}
