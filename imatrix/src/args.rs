//! The command line.

use std::path::{Path, PathBuf};

use gguf_cli::{Failure, OutputArgs, Result, TalkArgs};
use gguf_imatrix_format::base_name;
use gguf_runtime::options::{ChunkArgs, LoadArgs, OrderArgs, PoolArgs};

use crate::compare::CompareArgs;
use crate::convert::ConvertArgs;
use crate::statistics::StatsArgs;

/// Collect an importance matrix: how strongly real text drives each input column of each weight
///
/// Prints the running perplexity behind each chunk and the final estimate.
#[derive(clap::Parser, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[command(name = "gguf-imatrix", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Model: a GGUF file, or the folder of a checkpoint, which is converted as it is read
    #[arg(short, long, value_name = "GGUF or DIR")]
    pub(crate) model: Option<PathBuf>,
    /// Calibration text: a file of UTF-8, at most 1 GiB
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) file: Option<PathBuf>,
    /// Where the matrix goes
    #[arg(
        short,
        long,
        alias = "output-file",
        value_name = "FILE",
        default_value = "imatrix.gguf"
    )]
    pub(crate) output: PathBuf,
    /// Form of the file, whatever its name; `dat` loses the counts of single experts and the plain sums [default: gguf]
    #[arg(long, value_enum)]
    output_format: Option<Form>,
    /// Matrix whose sums are added to those of the run (repeatable); without a text, to those of the others
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) in_file: Vec<PathBuf>,
    /// Show the statistics of `--in-file`, as `stats` does
    #[arg(long)]
    pub(crate) show_statistics: bool,
    /// Collect for the output matrix too
    #[arg(long)]
    pub(crate) process_output: bool,
    /// Show every expert every token, or this share of the tokens; the model's own output stays as it is routed
    #[arg(long, value_name = "SHARE", num_args = 0..=1, default_missing_value = "1", value_parser = parse_share)]
    pub(crate) all_experts: Option<f64>,
    /// Do not compute perplexity
    #[arg(long)]
    pub(crate) no_ppl: bool,
    /// Read special tokens where the text spells them
    #[arg(long)]
    pub(crate) parse_special: bool,
    /// Leave out the first N chunks of the text
    #[arg(long, alias = "chunk", value_name = "N", default_value_t = 0)]
    pub(crate) from_chunk: usize,
    /// Write a checkpoint, `OUT.checkpoint`, every N chunks; 0 for none
    #[arg(long, alias = "ofreq", value_name = "N", default_value_t = 10)]
    pub(crate) output_frequency: usize,
    /// Write the matrix so far, `OUT.at_CHUNK`, every N chunks; 0 for never
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) save_frequency: usize,
    /// Go on from the checkpoint of a run that was stopped
    #[arg(long)]
    pub(crate) resume: bool,
    /// Fail, with the matrix written, where an expert saw fewer tokens
    #[arg(long, value_name = "N")]
    pub(crate) min_expert_tokens: Option<u64>,
    /// Run the model alone, to measure what collection costs; nothing is written
    #[arg(long, hide = true, conflicts_with_all = ["resume", "in_file", "all_experts", "process_output"])]
    pub(crate) no_collect: bool,
    /// Print the summary as JSON, in place of running values
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) chunks: ChunkArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    #[command(flatten)]
    pub(crate) threads: PoolArgs,
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

impl Form {
    /// Whether a file's name says that it is of the legacy form.
    pub(crate) fn is_legacy_name(path: &Path) -> bool {
        path.extension().is_some_and(|e| e.eq_ignore_ascii_case("dat"))
    }
}

/// Shortest chunk, in tokens: the inputs of shorter ones are not collected by the tools whose numbers these
/// are compared with.
const MIN_CTX: usize = 16;

fn parse_share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse().ok().filter(|s| *s > 0.0 && *s <= 1.0);
    share.ok_or_else(|| format!("expected a number above 0 and up to 1, found `{text}`"))
}

/// The files that a run needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunFiles<'a> {
    pub(crate) model: &'a Path,
    pub(crate) text: &'a Path,
}

impl Args {
    /// Whether there is neither a model nor a text, so that files are all there is to work on.
    pub(crate) fn is_merge(&self) -> bool {
        self.model.is_none() && self.file.is_none() && !self.in_file.is_empty()
    }

    /// The form of the matrix. As in llama.cpp the name does not decide, and one of the legacy form without the option
    /// is warned of.
    pub(crate) fn form(&self) -> Form {
        self.output_format.unwrap_or(Form::Gguf)
    }

    /// Warns of a name that speaks of another form than the matrix gets, unless the form is asked for.
    pub(crate) fn warn_of_name(&self) {
        if self.output_format.is_none() && Form::is_legacy_name(&self.output) && !self.talk.quiet {
            gguf_cli::warn(&format!(
                "`{}` gets the GGUF form: `--output-format dat` gives the legacy form, `--output-format gguf` \
                 silences this",
                self.output.display()
            ));
        }
    }

    /// The files of a run.
    pub(crate) fn run_files(&self) -> Result<RunFiles<'_>> {
        let missing = |option| {
            Failure::Usage(format!(
                "expected `-m MODEL -f TEXT`, or `--in-file FILE` to merge, found no `{option}`"
            ))
        };
        Ok(RunFiles {
            model: self.model.as_deref().ok_or_else(|| missing("-m MODEL"))?,
            text: self.file.as_deref().ok_or_else(|| missing("-f TEXT"))?,
        })
    }

    /// The calibration text.
    pub(crate) fn text(&self, files: RunFiles<'_>) -> Result<String> {
        let n_ctx = self.chunks.n_ctx();
        if n_ctx < MIN_CTX {
            return Err(Failure::Usage(format!(
                "context: expected at least {MIN_CTX} tokens, found {n_ctx}"
            )));
        }
        gguf_cli::read_text(files.text)
    }
}

impl RunFiles<'_> {
    /// The name that the text goes by in the matrix: without folders.
    pub(crate) fn dataset(&self) -> String {
        base_name(&self.text.to_string_lossy()).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Args;

    #[test]
    fn options_of_llama_cpp_mean_what_they_mean_there() {
        Args::command().debug_assert();
        assert_eq!(gguf_cli::foreign_clashes(&Args::command()), [""; 0]);
        let line = "x -m m -f t --ofreq 5 --chunk 2 --chunks -1 -t -1 --output-file o";
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        assert_eq!((args.output_frequency, args.from_chunk), (5, 2));
        assert_eq!((args.chunks.limit(), args.threads.threads), (None, 0));
        assert_eq!(args.output.to_str(), Some("o"));
    }
}
