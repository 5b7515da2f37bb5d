//! What is seen while the program works: lines of data, and progress beside them.

use std::io::IsTerminal as _;

use gguf_cli::{Failure, Progress, Result, Unit};

use super::args::Args;
use crate::Error;

/// Items that share a line on a terminal.
const ITEMS: usize = 8;

/// Writes results as they come. On a terminal only whole lines are written, so that the bar stays whole.
pub(super) struct View {
    json: bool,
    whole_lines: bool,
    items: Vec<String>,
    progress: Progress,
    /// Why results could not be written.
    failure: Option<Failure>,
}

impl View {
    pub(super) fn new(args: &Args, label: &str, total: usize, unit: Unit) -> Self {
        Self {
            json: args.json,
            whole_lines: std::io::stdout().is_terminal(),
            items: Vec::new(),
            progress: Progress::new(label, total as u64, unit, args.talk.quiet),
            failure: None,
        }
    }

    /// A step is done; `status` says how things stand.
    pub(super) fn step(&self, status: &str) {
        self.progress.status(status);
        self.progress.add(1);
    }

    /// A line of results.
    pub(super) fn line(&mut self, text: &str) -> crate::Result<()> {
        if self.json {
            return Ok(());
        }
        let done = self.progress.suspend(|| gguf_cli::print_data(text));
        done.map_err(|e| self.stop(e))
    }

    /// A part of a line that goes on.
    pub(super) fn item(&mut self, text: String) -> crate::Result<()> {
        if self.json {
            return Ok(());
        }
        if self.whole_lines {
            self.items.push(text);
            return if self.items.len() < ITEMS {
                Ok(())
            } else {
                self.flush()
            };
        }
        gguf_cli::write_data(|out| out.write_all(text.as_bytes())).map_err(|e| self.stop(e))
    }

    /// Ends the line of items.
    pub(super) fn end_items(&mut self) -> crate::Result<()> {
        if self.whole_lines {
            self.flush()
        } else {
            self.line("")
        }
    }

    fn flush(&mut self) -> crate::Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        let text = self.items.concat();
        self.items.clear();
        self.line(&text)
    }

    fn stop(&mut self, failure: Failure) -> Error {
        self.failure = Some(failure);
        Error::Stopped
    }

    /// The result of an evaluation: what kept lines from being written comes first.
    pub(super) fn outcome<T>(
        &mut self,
        done: crate::Result<T>,
        explain: impl FnOnce(Error) -> Failure,
    ) -> Result<T> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => done.map_err(explain),
        }
    }

    /// Ends progress.
    pub(super) fn finish(self) {
        self.progress.finish();
    }
}
