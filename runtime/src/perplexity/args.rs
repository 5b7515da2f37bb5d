//! The command line.

use std::path::{Path, PathBuf};

use gguf_cli::{Failure, OutputArgs, Result, TalkArgs, ThreadArgs};

use crate::options::ChunkArgs;

/// Scores how well a model predicts a text
///
/// Prints the running perplexity behind each chunk and the final estimate. With a base file, compares the
/// model's predictions with those of the model that made it.
#[derive(clap::Parser, Debug)]
#[command(name = "gguf-perplexity", version)]
pub(super) struct Args {
    /// Model
    #[arg(short, long, value_name = "GGUF")]
    pub(super) model: PathBuf,
    /// Text: a file of UTF-8, at most 1 GiB; not needed with --kl-divergence, whose base file holds the tokens: one that is given must
    /// be the base's
    #[arg(short, long, value_name = "TEXT", required_unless_present = "kl_divergence")]
    pub(super) file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) chunks: ChunkArgs,
    #[command(flatten)]
    pub(super) threads: ThreadArgs,
    /// File of log probabilities: written, or read with --kl-divergence
    #[arg(long, value_name = "FILE")]
    pub(super) kl_divergence_base: Option<PathBuf>,
    /// Compare with the predictions in the base file
    #[arg(long, requires = "kl_divergence_base")]
    pub(super) kl_divergence: bool,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Print all results as one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) talk: TalkArgs,
}

/// What is to be done with the base file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Base<'a> {
    /// Nothing: only perplexity.
    None,
    /// Write it beside scoring the text.
    Write(&'a Path),
    /// Compare with it.
    Compare(&'a Path),
}

impl Args {
    pub(super) fn base(&self) -> Base<'_> {
        match &self.kl_divergence_base {
            None => Base::None,
            Some(path) if self.kl_divergence => Base::Compare(path),
            Some(path) => Base::Write(path),
        }
    }

    /// The text, if one is given; it may be left out with a base file to compare with.
    pub(super) fn text(&self) -> Result<Option<String>> {
        match (&self.file, self.base()) {
            (Some(path), _) => gguf_cli::read_text(path).map(Some),
            (None, Base::Compare(_)) => Ok(None),
            (None, _) => Err(Failure::Usage("a text is needed: `-f TEXT`".into())),
        }
    }
}
