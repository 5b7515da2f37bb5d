//! The command line.

use std::path::{Path, PathBuf};

use gguf_cli::{Failure, OutputArgs, Result, TalkArgs, ThreadArgs};
use gguf_imatrix_format::base_name;
use gguf_runtime::options::{ChunkArgs, LoadArgs};

use crate::compare::CompareArgs;
use crate::convert::ConvertArgs;
use crate::statistics::StatsArgs;

/// Collect an importance matrix: how strongly real text drives each input column of each weight
///
/// Prints the running perplexity behind each chunk and the final estimate.
#[derive(clap::Parser, Debug)]
#[command(name = "gguf-imatrix", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Model
    #[arg(short, long, value_name = "GGUF")]
    model: Option<PathBuf>,
    /// Calibration text: a file of UTF-8, at most 1 GiB
    #[arg(short, long, value_name = "TEXT")]
    file: Option<PathBuf>,
    /// Matrix that goes into the output too (repeatable); without a text nothing else does
    #[arg(long, value_name = "FILE")]
    pub(crate) in_file: Vec<PathBuf>,
    /// Show the statistics of `--in-file`, as `stats` does
    #[arg(long)]
    pub(crate) show_statistics: bool,
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

/// What there is to do with matrices that are there.
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum Command {
    Stats(StatsArgs),
    Compare(CompareArgs),
    Convert(ConvertArgs),
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
        gguf_cli::read_text(self.file()?)
    }

    /// Whether there is neither a model nor a text, so that files are all there is to work on.
    pub(crate) fn is_merge(&self) -> bool {
        self.model.is_none() && self.file.is_none() && !self.in_file.is_empty()
    }

    /// The model.
    pub(crate) fn model(&self) -> Result<&Path> {
        required(self.model.as_deref(), "-m MODEL")
    }

    fn file(&self) -> Result<&Path> {
        required(self.file.as_deref(), "-f TEXT")
    }

    /// The name that the text goes by in the matrix: without folders.
    pub(crate) fn dataset(&self) -> String {
        let file = self.file.as_deref().unwrap_or(Path::new(""));
        base_name(&file.to_string_lossy()).to_owned()
    }

    /// Files that the output must not replace.
    pub(crate) fn inputs(&self) -> Vec<&Path> {
        let named = self.model.iter().chain(&self.file).chain(&self.in_file);
        named.map(PathBuf::as_path).collect()
    }
}

fn required<'a>(path: Option<&'a Path>, option: &str) -> Result<&'a Path> {
    path.ok_or_else(|| {
        Failure::Usage(format!(
            "expected `-m MODEL -f TEXT`, or `--in-file FILE` to merge, found no `{option}`"
        ))
    })
}
