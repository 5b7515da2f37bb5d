//! `gguf-perplexity`: how well a model predicts a text, and how far its predictions are from another's.
//!
//! The procedure and the numbers are those that results of llama.cpp are compared by: the text is cut in chunks
//! of `n_ctx` tokens, each is evaluated on its own, and the second half of each is scored.
//!
//! `run` scores texts with one model, beside a base file (`base`, `compact`) or without; `side_by_side` evaluates
//! several models batch by batch; `tasks` lets a model choose between answers. `rows` turns logits into scores
//! (`score`, `kl`), a `tally` adds up those of a text, `report` prints them, `view` shows them while they come.
//! `locate` looks for the cause of values that are no numbers.

mod args;
mod base;
mod compact;
mod kl;
mod locate;
mod probe;
mod report;
mod rows;
mod run;
pub mod score;
mod side_by_side;
mod tally;
mod tasks;
mod texts;
mod view;

#[doc(hidden)]
pub use probe::read_base;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|args: args::Args| run::run(&args))
}
