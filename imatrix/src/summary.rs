//! What is said of a matrix that was written.

use std::path::Path;

use gguf_cli::{Failure, Result, count};
use gguf_imatrix_format::Imatrix;
use gguf_runtime::perplexity::score::Perplexity;
use serde::Serialize;

use crate::args::Args;
use crate::coverage::{Coverage, ENOUGH};
use crate::files;

/// The summary for scripts.
#[derive(Serialize)]
pub(crate) struct Summary<'a> {
    file: String,
    chunks: u32,
    chunk_size: u32,
    weights: usize,
    /// Of a run that computed it.
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

/// A matrix under its name, and what its experts saw.
pub(crate) struct Written<'a> {
    imatrix: &'a Imatrix,
    path: &'a Path,
    args: &'a Args,
    coverage: Coverage,
}

impl<'a> Written<'a> {
    pub(crate) fn new(imatrix: &'a Imatrix, path: &'a Path, args: &'a Args) -> Self {
        let coverage = Coverage::of(&imatrix.entries, args.min_expert_tokens.unwrap_or(ENOUGH));
        Self {
            imatrix,
            path,
            args,
            coverage,
        }
    }

    /// What experts saw, and warnings.
    pub(crate) fn tell(&self) {
        if self.args.talk.quiet {
            return;
        }
        if self.coverage.has_experts() {
            gguf_cli::say(&self.coverage.table());
        }
        let lost = files::lost(self.imatrix, self.args.form());
        let lines = self.coverage.warning().into_iter().chain(lost);
        lines.for_each(|line| gguf_cli::warn(&line));
    }

    /// The line of its name; `of` says what it was made of, or nothing.
    pub(crate) fn line(&self, of: &str) -> String {
        format!(
            "wrote `{}`: {}{of}, {} of {}",
            self.path.display(),
            count(self.imatrix.entries.len() as u64, "weight"),
            count(self.imatrix.chunk_count.into(), "chunk"),
            count(self.imatrix.chunk_size.into(), "token")
        )
    }

    /// Prints the summary where scripts want it.
    pub(crate) fn print(&self, perplexity: Option<&Perplexity>) -> Result<()> {
        if !self.args.json {
            return Ok(());
        }
        gguf_cli::print_json(&Summary {
            file: self.path.display().to_string(),
            chunks: self.imatrix.chunk_count,
            chunk_size: self.imatrix.chunk_size,
            weights: self.imatrix.entries.len(),
            perplexity: perplexity.map(|p| Estimate {
                value: p.value(),
                stderr: p.stderr(),
                tokens: p.n,
            }),
            coverage: self.coverage.has_experts().then_some(&self.coverage),
        })
    }

    /// A failure if an expert saw fewer tokens than the command line asks for.
    pub(crate) fn verdict(&self) -> Result<()> {
        match (self.args.min_expert_tokens, self.coverage.below()) {
            (Some(wanted), below @ 1..) => Err(Failure::Input(format!(
                "expected at least {wanted} tokens for each expert, found {} for the one with the fewest, and fewer for {}; \
                 use more text, or `--all-experts`",
                self.coverage.least(),
                count(below as u64, "expert")
            ))),
            _ => Ok(()),
        }
    }
}
