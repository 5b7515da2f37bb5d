//! What the suite's programs share: exit codes, messages, progress, thread pools, tables.
//!
//! A program is a clap parser and a function: [`run`] ties them together. The function does its work through
//! the library crates and returns a [`Failure`] where it cannot go on; nothing else decides about exit codes
//! and nothing else writes `error:` lines, so that every program of the suite fails in the same way:
//!
//! * exit 0: done; also when whoever read the output closed it (`| head`);
//! * exit 1: the input is bad or a check failed;
//! * exit 2: the command line or the environment is at fault.
//!
//! Data goes to stdout through [`print_data`], [`print_json`], [`write_report`] and [`write_data`], the one place that
//! knows about closed pipes. Talk goes to stderr: [`warn`], [`Progress`] and [`Progress::note`]. Both escape controls in
//! what files bring along; only [`write_data`] leaves bytes as they are, where stdout is no terminal. A failure is one
//! line, whatever was wrong; memory that the system refuses is one too, by way of the [`Allocator`] that every program
//! has.
//!
//! Options that mean the same everywhere are flattened in: [`ThreadArgs`], [`OutputArgs`], [`TalkArgs`],
//! [`ReserveArgs`]. Options that people know from llama.cpp and that are not here have their answers in one table
//! ([`foreign_clashes`] proves that none of them is a program's own).
//! Each program owns its thread pool ([`thread_pool`]); the global pool of rayon is never used, so that `-t`
//! holds for everything.
//!
//! The crate knows no format and no model; it takes [`gguf::Error`] apart only to choose the exit code and to put
//! the file's name in front of messages about its keys ([`in_file`]).

use std::borrow::Cow;
use std::path::Path;

mod args;
mod foreign;
mod machine;
mod memory;
mod pool;
mod preview;
mod progress;
mod run;
mod screen;
mod table;
mod talk;
mod text;
mod words;

pub use args::{
    OutputArgs, ReserveArgs, TalkArgs, ThreadArgs, parse_decimal_size, parse_size, parse_threads,
};
pub use foreign::foreign_clashes;
pub use machine::{AddressSpace, THREAD_BYTES, available_memory, room_for_threads};
pub use memory::Allocator;
pub use pool::{MAX_THREADS, n_threads, spawn_scoped, thread_pool};
pub use preview::{preview, preview_cut};
pub use progress::{Progress, Unit};
pub use run::{run, run_with_default};
pub use screen::printable;
pub use table::{count, human_bytes, human_time, shortened, table};
pub use talk::{print_data, print_json, print_json_line, say, warn, write_data, write_report};
pub use text::{read_text, text_memory};

/// Why a program stops, by exit code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Exit 1: the input is bad or a check failed.
    #[error("{0}")]
    Input(String),
    /// Exit 2: the command line or the environment is at fault (missing file, full disk, existing output).
    #[error("{0}")]
    Usage(String),
    /// Exit 1 without a line: the report on stdout has said what was found.
    #[error("see the report")]
    Reported,
    /// Exit 0: whoever reads the output has closed it. Made by [`write_data`] alone.
    #[error("the output was closed")]
    Closed,
}

impl Failure {
    /// The same with more words behind.
    #[must_use]
    pub fn and(self, more: &str) -> Self {
        match self {
            Self::Input(what) => Self::Input(what + more),
            Self::Usage(what) => Self::Usage(what + more),
            without_words => without_words,
        }
    }
}

/// The last part of a path, for reports in which a folder would be private or noise.
pub fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()
}

/// What becomes of an error about `file`: that of a metadata key, which knows no file, gets its name in front.
pub fn in_file(file: &Path) -> impl Fn(gguf::Error) -> Failure {
    move |e| match e {
        gguf::Error::Key { .. } => Failure::Input(format!("`{}`: {e}", file.display())),
        other => other.into(),
    }
}

impl From<gguf::Error> for Failure {
    fn from(e: gguf::Error) -> Self {
        match e {
            gguf::Error::Io { .. } | gguf::Error::Output(_) => Self::Usage(e.to_string()),
            _ => Self::Input(e.to_string()),
        }
    }
}

/// Result of a program's steps.
pub type Result<T> = std::result::Result<T, Failure>;
