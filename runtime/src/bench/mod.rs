//! `gguf-bench`: tokens per second for a prompt and for generation.

mod args;
mod report;
mod run;

use crate::options::TwoLetter;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|TwoLetter(args): TwoLetter<args::Args>| run::run(&args))
}
