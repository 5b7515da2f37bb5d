//! What is said while the model runs, and in the end.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use gguf_cli::{Failure, Progress, Result, Unit, count};
use gguf_imatrix_format::Imatrix;
use gguf_runtime::Error;
use gguf_runtime::chunks::{ChunkRows, Chunks};
use gguf_runtime::perplexity::score::{LogSum, Perplexity};
use serde::Serialize;

use crate::args::Args;
use crate::checkpoint::Reached;
use crate::coverage::{Coverage, ENOUGH};
use crate::files;
use crate::output::Output;

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
}

/// The summary for scripts.
#[derive(Serialize)]
struct Summary<'a> {
    file: String,
    chunks: u32,
    chunk_size: u32,
    weights: usize,
    perplexity: Option<Estimate>,
    /// What experts saw, if there are some.
    coverage: Option<&'a Coverage>,
}

#[derive(Serialize)]
struct Estimate {
    value: f64,
    stderr: Option<f64>,
    tokens: usize,
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
        }
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
        let asked = self.args.min_expert_tokens;
        let coverage = Coverage::of(&imatrix.entries, asked.unwrap_or(ENOUGH));
        if !self.args.talk.quiet {
            if coverage.has_experts() {
                self.progress.suspend(|| gguf_cli::say(&coverage.table()));
            }
            let lost = files::lost(imatrix, self.args.output_format);
            let lines = coverage.warning().into_iter().chain(lost);
            lines.for_each(|line| gguf_cli::warn(&line));
        }
        self.progress.note(&format!(
            "wrote `{}`: {}, {} of {}",
            output.path().display(),
            count(imatrix.entries.len() as u64, "weight"),
            count(imatrix.chunk_count.into(), "chunk"),
            count(imatrix.chunk_size.into(), "token")
        ));
        self.progress.finish();
        if self.args.json {
            let perplexity = self.perplexity.as_ref();
            gguf_cli::print_json(&Summary {
                file: output.path().display().to_string(),
                chunks: imatrix.chunk_count,
                chunk_size: imatrix.chunk_size,
                weights: imatrix.entries.len(),
                perplexity: perplexity.map(|p| Estimate {
                    value: p.value(),
                    stderr: p.stderr(),
                    tokens: p.n,
                }),
                coverage: coverage.has_experts().then_some(&coverage),
            })?;
        }
        match (asked, coverage.below()) {
            (Some(wanted), below @ 1..) => Err(Failure::Input(format!(
                "expected at least {wanted} tokens for each expert, found {} for the one with the fewest, and fewer for {}; \
                 use more text, or `--all-experts`",
                coverage.least(),
                count(below as u64, "expert")
            ))),
            _ => Ok(()),
        }
    }
}
