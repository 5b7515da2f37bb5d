//! The command line.

use std::path::PathBuf;

use gguf_cli::{TalkArgs, ThreadArgs};

use crate::options::UbatchArgs;

/// Measures tokens per second for prompt processing and generation
///
/// The prompt is random tokens in one batch on an empty context; generation is one random token after another
/// on an empty context. One repetition of each goes ahead unmeasured.
#[derive(clap::Parser, Debug)]
#[command(name = "gguf-bench", version)]
pub(super) struct Args {
    /// Model
    #[arg(short, long, value_name = "GGUF")]
    pub(super) model: PathBuf,
    /// Tokens of the prompt; 0 leaves this test out
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512)]
    pub(super) n_prompt: usize,
    /// Tokens that are generated; 0 leaves this test out
    #[arg(short, long, value_name = "N", default_value_t = 128)]
    pub(super) n_gen: usize,
    /// Measured repetitions of each test
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) repetitions: u32,
    #[command(flatten)]
    pub(super) threads: ThreadArgs,
    #[command(flatten)]
    pub(super) ubatch: UbatchArgs,
    /// Print all results as one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) talk: TalkArgs,
}
