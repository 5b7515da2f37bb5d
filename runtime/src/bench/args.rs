//! The command line.

use std::path::PathBuf;

use gguf_cli::{OutputArgs, TalkArgs};

use super::list::{self, List};
use super::report::Format;
use crate::options::{LoadArgs, PlacementArgs};
use crate::{Compute, KvType};

/// Measures tokens per second for prompt processing and generation
///
/// Tests are of a prompt (pp), of generation, one token after another (tg), and of both (pp+tg), each behind a context
/// of -d tokens. Options in the list take values apart by commas (1,2,4), ranges (1-4, 0-4096+1024, 64-512*2), and can
/// be given several times; all combinations are run. Each test is repeated until successive times agree, then -r times
/// for the result: the median, with its confidence interval.
#[derive(clap::Parser, Debug)]
#[command(name = "gguf-bench", version)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
pub(super) struct Args {
    /// Models; several apart by commas, or the option several times
    #[arg(short, long, value_name = "GGUF", required = true)]
    pub(super) model: Vec<String>,

    /// Tokens of the prompt; 0 leaves this test out [default: 512]
    #[arg(short = 'p', long, value_name = "LIST", value_parser = list::numbers, help_heading = "Lists")]
    pub(super) n_prompt: Vec<List<usize>>,
    /// Tokens that are generated; 0 leaves this test out [default: 128]
    #[arg(short, long, value_name = "LIST", value_parser = list::numbers, help_heading = "Lists")]
    pub(super) n_gen: Vec<List<usize>>,
    /// A prompt of P tokens and N generated behind it, as one test (short: -pg)
    #[arg(long, alias = "pg", value_name = "P,N", value_parser = list::pair, help_heading = "Lists")]
    pub(super) prompt_gen: Vec<(usize, usize)>,
    /// Tokens in the context before a test begins [default: 0]
    #[arg(short = 'd', long, value_name = "LIST", value_parser = list::numbers, help_heading = "Lists")]
    pub(super) n_depth: Vec<List<usize>>,
    /// Tokens that are given at once [default: 2048]
    #[arg(short, long, value_name = "LIST", value_parser = list::positive, help_heading = "Lists")]
    pub(super) batch_size: Vec<List<usize>>,
    /// Tokens that go through the layers together (short: -ub) [default: 512]
    #[arg(long, alias = "ub", value_name = "LIST", value_parser = list::positive, help_heading = "Lists")]
    pub(super) ubatch_size: Vec<List<usize>>,
    /// Types of cached keys: `f32`, `f16`, `bf16`, `q8_0`, `q4_0` (short: -ctk) [default: f16]
    #[arg(long, alias = "ctk", value_name = "LIST", value_parser = list::names::<KvType>, help_heading = "Lists")]
    pub(super) cache_type_k: Vec<List<KvType>>,
    /// Types of cached values (short: -ctv) [default: f16]
    #[arg(long, alias = "ctv", value_name = "LIST", value_parser = list::names::<KvType>, help_heading = "Lists")]
    pub(super) cache_type_v: Vec<List<KvType>>,
    /// Threads to compute with; 0, or -1, takes as many as the machine offers [default: 0]
    #[arg(short, long, value_name = "LIST", value_parser = list::threads, help_heading = "Lists")]
    #[arg(allow_negative_numbers = true)]
    pub(super) threads: Vec<List<usize>>,

    /// Measure while the context fills: -p tokens of prompt [default: the ubatch] and -n generated [default: a quarter
    /// of that] at every -p tokens, up to -c
    #[arg(long, conflicts_with_all = ["prompt_gen", "n_depth"])]
    pub(super) sweep: bool,
    /// Tokens that a context can hold; tests that need more are refused [default: what the tests need; 4096 for --sweep]
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(super) ctx_size: Option<u32>,
    /// Measured repetitions of each test [default: 10; 3 for --sweep]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) repetitions: Option<u32>,
    /// Measure from the first time on, without repetitions ahead
    #[arg(long)]
    pub(super) no_warmup: bool,
    /// Wait for a line on standard input before each measured repetition, so that another program can be measured in
    /// turn; the line `next` ends the test before its -r repetitions. Leaves out how fast the machine reads memory
    #[arg(long)]
    pub(super) in_turn: bool,
    /// Drop the model's pages from memory before it is opened, so that the first evaluations read the disk
    #[arg(long)]
    pub(super) cold: bool,
    /// How weights are multiplied: fast, by the kernels of their types, or f32, decoded
    #[arg(long, value_name = "HOW", default_value = "fast")]
    pub(super) compute: Compute,
    /// Leave out how fast the machine reads memory, which takes 256 MiB or more and some tenths of a second
    #[arg(long)]
    pub(super) no_bandwidth: bool,

    /// Form of the results
    #[arg(short, long, value_name = "FORM", default_value = "md")]
    pub(super) output: Format,
    /// The same as `-o json`
    #[arg(long, conflicts_with = "output")]
    pub(super) json: bool,
    /// Draw the results, too: speed over depth, or over the first list with several values
    #[arg(long, value_name = "SVG")]
    pub(super) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) placement: PlacementArgs,
    #[command(flatten)]
    pub(super) overwrite: OutputArgs,
    #[command(flatten)]
    pub(super) talk: TalkArgs,
}

impl Args {
    /// Form of the results.
    pub(super) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }

    /// Measured repetitions of each test.
    pub(super) fn repetitions(&self) -> u32 {
        self.repetitions.unwrap_or(if self.sweep { 3 } else { 10 })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Args;

    #[test]
    fn options_are_in_order() {
        Args::command().debug_assert();
        assert_eq!(gguf_cli::foreign_clashes(&Args::command()), [""; 0]);
    }
}
