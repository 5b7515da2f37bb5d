//! What is said while the model runs, and in the end.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use gguf_cli::{Failure, Progress, Result, Unit};
use gguf_imatrix_format::Imatrix;
use gguf_runtime::Error;
use gguf_runtime::chunks::{ChunkRows, Chunks};
use gguf_runtime::perplexity::score::{LogSum, Perplexity};

use crate::args::Args;
use crate::checkpoint::Reached;
use crate::output::Output;
use crate::summary::Written;

/// Scores, progress and the summary.
pub(crate) struct Talk<'a> {
    args: &'a Args,
    chunks: &'a Chunks,
    /// Scores, if they are wanted.
    perplexity: Option<Perplexity>,
    progress: Progress,
    /// Chunks that are complete.
    done: usize,
    /// Why running values can no longer be printed. The run goes on: the matrix is what it is for.
    failure: Option<Failure>,
    /// Why the last copy that could not be written was not. The run goes on here, too.
    failed_copy: Option<Failure>,
}

impl<'a> Talk<'a> {
    /// Goes on from where a run was stopped.
    pub(crate) fn new(args: &'a Args, chunks: &'a Chunks, reached: &Reached) -> Self {
        // On a terminal the running perplexity itself shows progress, and a bar would tear it.
        let shows_values = !args.no_ppl && !args.json && std::io::stdout().is_terminal();
        let silent = args.talk.quiet || shows_values;
        let progress = Progress::new("imatrix", chunks.n_chunks() as u64, Unit::Chunks, silent);
        progress.add(reached.chunks as u64);
        Self {
            args,
            chunks,
            perplexity: (!args.no_ppl).then(|| reached.perplexity()),
            progress,
            done: reached.chunks,
            failure: None,
            failed_copy: None,
        }
    }

    /// Hears what became of a copy behind `chunk`.
    pub(crate) fn copy(&mut self, chunk: usize, copy: Result<()>) {
        if let Err(e) = copy {
            gguf_cli::warn(&format!("no copy at chunk {chunk}: {e}"));
            self.failed_copy = Some(e);
        }
    }

    /// What became of the copies, when the matrix is written.
    pub(crate) fn copies(&mut self, output: &Output<'_>) -> Result<()> {
        let Some(e) = self.failed_copy.take() else {
            return Ok(());
        };
        Err(e.and(&format!(
            "; the matrix itself is in `{}`",
            output.path().display()
        )))
    }

    /// Chunks that are complete.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// The perplexity so far.
    pub(crate) fn perplexity(&self) -> Option<&Perplexity> {
        self.perplexity.as_ref()
    }

    /// Scores rows of logits, unless a fault was met.
    pub(crate) fn take(
        &mut self,
        block: ChunkRows<'_>,
        stop: Option<&Cell<bool>>,
    ) -> gguf_runtime::Result<()> {
        if stop.is_some_and(Cell::get) {
            return Err(Error::Stopped);
        }
        let Some(p) = &mut self.perplexity else {
            return Ok(());
        };
        let scored = self.chunks.scored();
        let mut ended = String::new();
        for (&(chunk, pos), logits) in block.places.iter().zip(block.rows.chunks_exact(block.n_vocab)) {
            if !scored.contains(&pos) {
                continue;
            }
            let sum = LogSum::of(logits).map_err(|token| Error::NonFinite {
                chunk: chunk + 1,
                pos,
                token,
                value: logits[token],
            })?;
            p.add(sum.nll(logits[self.chunks.target((chunk, pos)) as usize]));
            if pos + 1 == scored.end {
                let _ = write!(ended, "[{}]{:.4},", chunk + 1, p.value());
            }
        }
        if !ended.is_empty() && !self.args.json && self.failure.is_none() {
            self.failure = gguf_cli::write_data(|out| out.write_all(ended.as_bytes())).err();
        }
        Ok(())
    }

    /// Notes that chunks are complete.
    pub(crate) fn pass(&mut self, n_chunks: usize) {
        self.done += n_chunks;
        self.progress.add(n_chunks as u64);
    }

    /// Ends the line of running perplexities with the estimate.
    pub(crate) fn estimate(&mut self) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let Some(p) = self.perplexity.as_ref().filter(|_| !self.args.json) else {
            return Ok(());
        };
        let error = p.stderr().map_or("unknown".to_owned(), |e| format!("{e:.5}"));
        gguf_cli::print_data(&format!("\nFinal estimate: PPL = {:.4} +/- {error}", p.value()))
    }

    /// The summary of a run whose matrix is written.
    pub(crate) fn finish(self, output: &Output<'_>, imatrix: &Imatrix) -> Result<()> {
        let written = Written::new(imatrix, output.path(), self.args);
        self.progress.suspend(|| written.tell());
        self.progress.note(&written.line(""));
        self.progress.finish();
        written.print(self.perplexity.as_ref())?;
        written.verdict()
    }
}
