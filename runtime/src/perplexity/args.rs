//! The command line.

#![expect(clippy::doc_markdown, reason = "help texts name benchmarks as they are known")]

use std::path::{Path, PathBuf};

use gguf_cli::{Failure, OutputArgs, Result, TalkArgs};

use crate::options::{ChunkArgs, ExactnessArgs, LoadArgs, OrderArgs, PoolArgs};

/// Scores how well a model predicts a text
///
/// Prints the running perplexity behind each chunk and the final estimate. With a base file or with --compare,
/// compares models' predictions with those of a base model. With --hellaswag, --winogrande or --multiple-choice,
/// lets the model choose between answers.
#[derive(clap::Parser, Debug)]
#[command(name = "gguf-perplexity", version)]
pub(super) struct Args {
    /// Model
    #[arg(short, long, value_name = "GGUF")]
    pub(super) model: PathBuf,
    /// Text: a file of UTF-8, at most 1 GiB; `-` reads the standard input. Given several times, each text is
    /// scored on its own and all together. Not needed with --kl-divergence, whose base file holds the tokens: one
    /// that is given must be the base's. For tasks, the file of the tasks
    #[arg(short, long, value_name = "TEXT", required_unless_present_any = ["kl_divergence", "prompt"])]
    pub(super) file: Vec<PathBuf>,
    /// Text, as it stands on the command line
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub(super) prompt: Option<String>,
    #[command(flatten)]
    pub(super) chunks: ChunkArgs,
    #[command(flatten)]
    pub(super) exactness: ExactnessArgs,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) order: OrderArgs,
    #[command(flatten)]
    pub(super) threads: PoolArgs,
    /// Score the last N tokens of windows that start N tokens apart, instead of the second half of each chunk.
    /// Windows have -c plus N/2 tokens, rounded up to a multiple of 256: those of llama-perplexity where it
    /// evaluates one sequence at a time (-b less than twice -c); here -b is free
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) ppl_stride: usize,
    /// 0: `[chunk]perplexity,`. 1: a line a chunk, its first token, perplexity, mean and standard error of the
    /// negative log probabilities
    #[arg(long, value_name = "TYPE", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(super) ppl_output_type: u8,
    /// File of log probabilities: written, or read with --kl-divergence
    #[arg(
        long,
        alias = "save-all-logits",
        value_name = "FILE",
        conflicts_with = "ppl_stride"
    )]
    pub(super) kl_divergence_base: Option<PathBuf>,
    /// Write the base file a tenth as large: the likeliest tokens of each position, the others as one. Only this
    /// program reads it
    #[arg(long, requires = "kl_divergence_base", conflicts_with = "kl_divergence")]
    pub(super) kl_compact: bool,
    /// Compare with the predictions in the base file
    #[arg(long, requires = "kl_divergence_base")]
    pub(super) kl_divergence: bool,
    /// Compare this model with -m, side by side and without a file; may be given several times
    #[arg(long, value_name = "GGUF", conflicts_with_all = ["kl_divergence", "kl_divergence_base"])]
    pub(super) compare: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) tasks: TaskArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Print all results as one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) talk: TalkArgs,
}

/// Questions with answers to choose from.
#[derive(clap::Args, Clone, Copy, Debug)]
#[group(id = "kind", multiple = true, conflicts_with_all = ["kl_divergence", "kl_divergence_base", "compare", "ppl_stride", "prompt", "layer_major"])]
pub(super) struct TaskArgs {
    /// Score HellaSwag tasks: six lines each, context, number of the right ending from 0, four endings
    #[arg(long, conflicts_with_all = ["winogrande", "multiple_choice"])]
    hellaswag: bool,
    /// HellaSwag tasks to score, chosen at random, the same ones every time; 0 takes all [default: 400]
    #[arg(long, value_name = "N", requires = "hellaswag")]
    hellaswag_tasks: Option<usize>,
    /// Score Winogrande tasks: lines `number,sentence with _,choice 1,choice 2,answer`, the answer 1 or 2
    #[arg(long, conflicts_with = "multiple_choice")]
    winogrande: bool,
    /// Winogrande tasks to score; all if not given
    #[arg(long, value_name = "N", requires = "winogrande")]
    winogrande_tasks: Option<usize>,
    /// Score multiple-choice tasks from a binary file of llama.cpp's layout (ARC, MMLU, TruthfulQA)
    #[arg(long)]
    multiple_choice: bool,
    /// Multiple-choice tasks to score; all if not given
    #[arg(long, value_name = "N", requires = "multiple_choice")]
    multiple_choice_tasks: Option<usize>,
}

/// A kind of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskKind {
    HellaSwag,
    Winogrande,
    MultipleChoice,
}

/// HellaSwag tasks where no number is given: the reference's choice.
const HELLASWAG_TASKS: usize = 400;

impl TaskArgs {
    /// Which tasks are asked for, and how many at most.
    pub(super) fn kind(self) -> Option<(TaskKind, usize)> {
        let limit = |given: Option<usize>, default: usize| match given.unwrap_or(default) {
            0 => usize::MAX,
            n => n,
        };
        if self.hellaswag {
            Some((TaskKind::HellaSwag, limit(self.hellaswag_tasks, HELLASWAG_TASKS)))
        } else if self.winogrande {
            Some((TaskKind::Winogrande, limit(self.winogrande_tasks, 0)))
        } else if self.multiple_choice {
            let n = limit(self.multiple_choice_tasks, 0);
            Some((TaskKind::MultipleChoice, n))
        } else {
            None
        }
    }
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

    /// What the options together do not allow.
    pub(super) fn check(&self) -> Result<()> {
        let n = self.file.len();
        let usage = |what: &str| Err(Failure::Usage(format!("{what}: expected one `-f`, found {n}")));
        if self.tasks.kind().is_some() && n != 1 {
            return usage("tasks");
        }
        if self.kl_divergence_base.is_some() && n > 1 {
            return usage("a base file holds one text");
        }
        if self.file.iter().filter(|p| p.as_os_str() == "-").count() > 1 {
            return Err(Failure::Usage(
                "`-f -`: the standard input can be read once".into(),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[test]
    fn options_that_exclude_one_another_are_refused() {
        Args::command().debug_assert();
        assert_eq!(gguf_cli::foreign_clashes(&Args::command()), [""; 0]);
        let parse = |line: &str| Args::try_parse_from(format!("x -m a {line}").split_whitespace());
        for wrong in [
            "",
            "-f t -p t",
            "-f t --kl-divergence",
            "-f t --compare b --kl-divergence-base k",
            "-f t --ppl-stride 4 --kl-divergence-base k",
            "-f t --hellaswag --winogrande",
            "-f t --hellaswag --compare b",
            "-f t --winogrande-tasks 3",
            "-p t --multiple-choice",
            "-f t --ppl-output-type 2",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let kind = |line: &str| parse(line).unwrap().tasks.kind();
        assert_eq!(kind("-f t --hellaswag"), Some((TaskKind::HellaSwag, 400)));
        assert_eq!(
            kind("-f t --hellaswag --hellaswag-tasks 0"),
            Some((TaskKind::HellaSwag, usize::MAX))
        );
        assert_eq!(
            kind("-f t --winogrande --winogrande-tasks 7"),
            Some((TaskKind::Winogrande, 7))
        );
        assert_eq!(kind("-f t -f u --compare b --compare c"), None);
        // As llama.cpp names it too.
        let base = parse("-f t --save-all-logits k").unwrap();
        assert!(matches!(base.base(), Base::Write(path) if path == Path::new("k")));
        for several in [
            "-f t -f u --hellaswag",
            "-f t -f u --kl-divergence-base k",
            "-f - -f -",
        ] {
            assert!(parse(several).unwrap().check().is_err(), "{several}");
        }
    }
}
