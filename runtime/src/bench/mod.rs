//! `gguf-bench`: tokens per second for a prompt and for generation.

mod args;
mod report;
mod run;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|args: args::Args| run::run(&args))
}
