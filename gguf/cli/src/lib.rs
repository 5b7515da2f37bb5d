//! What the suite's programs share: exit codes, messages, progress, thread pools, tables.

use std::process::ExitCode;

/// Why a program stops, by exit code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Exit 1: the input is bad or a check failed.
    #[error("{0}")]
    Input(String),
    /// Exit 2: the command line or the environment is at fault (missing file, full disk, existing output).
    #[error("{0}")]
    Usage(String),
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

/// Runs a program: parses `A` from the command line, calls `f`, prints a failure as one line `error: ..` to
/// stderr and maps it to the exit code. A closed pipe on stdout is success.
pub fn run<A: clap::Parser>(_f: impl FnOnce(A) -> Result<()>) -> ExitCode {
    todo!()
}

/// A rayon pool of `n` threads (0 = as many as the machine offers). Programs run all parallel work inside
/// `pool.install`.
pub fn thread_pool(_n: usize) -> Result<rayon::ThreadPool> {
    todo!()
}

/// Writes a line of data to stdout; a closed pipe ends the program quietly.
pub fn print_data(_text: &str) -> Result<()> {
    todo!()
}

/// Progress of long work on stderr: a bar with rate and time left on a terminal, else a plain line every few
/// seconds; silent when `quiet`.
#[derive(Debug)]
pub struct Progress {}

/// What the steps of a progress are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Unit {
    Bytes,
    Chunks,
    Tensors,
}

impl Progress {
    /// Starts `total` steps under a short label.
    pub fn new(_label: &str, _total: u64, _unit: Unit, _quiet: bool) -> Self {
        todo!()
    }
    /// Adds steps done.
    pub fn add(&self, _n: u64) {
        todo!()
    }
    /// A line of talk that does not tear the bar.
    pub fn note(&self, _line: &str) {
        todo!()
    }
    /// Ends it.
    pub fn finish(self) {
        todo!()
    }
}

/// A plain-text table for people: headers, rows, the named columns right-aligned.
pub fn table(_headers: &[&str], _rows: &[Vec<String>], _right: &[usize]) -> String {
    todo!()
}

/// A byte count as people write it: `1.07 GiB`.
pub fn human_bytes(_n: u64) -> String {
    todo!()
}
