//! The command line.

use std::path::{Path, PathBuf};

use gguf_cli::{Failure, OutputArgs, Result, TalkArgs, ThreadArgs};
use gguf_imatrix_format::base_name;
use gguf_runtime::options::{ChunkArgs, LoadArgs};

/// Collect an importance matrix: how strongly real text drives each input column of each weight
///
/// Prints the running perplexity behind each chunk and the final estimate.
#[derive(clap::Parser, Debug)]
#[command(name = "gguf-imatrix", version)]
pub(crate) struct Args {
    /// Model
    #[arg(short, long, value_name = "GGUF")]
    pub(crate) model: PathBuf,
    /// Calibration text: a file of UTF-8, at most 1 GiB
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) file: PathBuf,
    /// Where the matrix goes
    #[arg(
        short,
        long,
        alias = "output-file",
        value_name = "FILE",
        default_value = "imatrix.gguf"
    )]
    pub(crate) output: PathBuf,
    /// Form of the file; `dat` loses the counts of single experts and the plain sums
    #[arg(long, value_enum, default_value_t = Form::Gguf)]
    pub(crate) output_format: Form,
    /// Collect for the output matrix too
    #[arg(long)]
    pub(crate) process_output: bool,
    /// Do not compute perplexity
    #[arg(long)]
    pub(crate) no_ppl: bool,
    #[command(flatten)]
    pub(crate) chunks: ChunkArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) force: OutputArgs,
    #[command(flatten)]
    pub(crate) talk: TalkArgs,
}

/// The forms of an importance matrix file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    Gguf,
    Dat,
}

/// Shortest chunk, in tokens: the inputs of shorter ones are not collected by the tools whose numbers these
/// are compared with.
const MIN_CTX: usize = 16;

impl Args {
    /// The calibration text.
    pub(crate) fn text(&self) -> Result<String> {
        let n_ctx = self.chunks.n_ctx();
        if n_ctx < MIN_CTX {
            return Err(Failure::Usage(format!(
                "context: expected at least {MIN_CTX} tokens, found {n_ctx}"
            )));
        }
        gguf_cli::read_text(&self.file)
    }

    /// The name that the text goes by in the matrix: without folders.
    pub(crate) fn dataset(&self) -> String {
        base_name(&self.file.to_string_lossy()).to_owned()
    }

    /// Files that the output must not replace.
    pub(crate) fn inputs(&self) -> [&Path; 2] {
        [&self.model, &self.file]
    }
}
