//! `gguf-perplexity`: how well a model predicts a text, and how far its predictions are from another's.
//!
//! The procedure and the numbers are those that results of llama.cpp are compared by: the text is cut in chunks
//! of `n_ctx` tokens, each is evaluated on its own, and the second half of each is scored.

mod args;
mod base;
mod kl;
mod locate;
mod report;
mod rows;
mod run;
pub mod score;
mod side_by_side;
mod tally;
mod tasks;
mod texts;
mod view;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|args: args::Args| run::run(&args))
}
