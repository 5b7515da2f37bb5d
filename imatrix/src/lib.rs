//! `gguf-imatrix`: collects importance matrices, and works on those that are there.
//!
//! The model runs over a calibration text, cut in chunks of one context each, and an observer in the forward
//! pass sees the input of every product with a weight. For each weight inside the layers it adds up the
//! squares and the values of each input column and counts the rows; for a stack of experts it does so for
//! each expert, with the rows that were routed to it. The quantizer turns the sums into mean squares: how much
//! an error in a column's weights costs.
//!
//! The chunks are evaluated as in a perplexity run, and the running perplexity is printed: a calibration text
//! on which the model does badly is a poor one, or the model file is damaged.
//!
//! Sums are kept in f64 in the order of the tokens and stored as f32, so the file is the same for any number
//! of threads and any batch size. A router's near tie can fall otherwise in another implementation, so counts
//! of single experts may differ from it by a few tokens; the sum over experts does not.
//!
//! Weights that share an input share its sums (`sums`, `collect`). A run that is stopped goes on from its last
//! checkpoint (`checkpoint`), which holds the f64 sums and says which run it is of; what a file holds is the same as
//! without the stop. The output has its name only when it is complete.
//!
//! The model is a GGUF file, or a checkpoint folder that is converted as it is read (`model`). One that does not fit in
//! memory is evaluated layer by layer (`layers`): all chunks pass one layer after the other, and each weight is read
//! once. The sums are the same bits; a checkpoint is of a layer then, and has the hidden states too.
//!
//! The file says what it was made of (`origin`): the model's fingerprint and settings, which survive quantizing, and the
//! SHA-256 of the text, so that the quantizer can tell a matrix of another model or of other settings. What the experts
//! saw is a table (`coverage`) at the end of a run (`summary`).
//!
//! Without a text `--in-file` adds matrices up (`merge`); `stats`, `compare` and `convert` are commands on files of
//! either form, each a module with its arguments. What a form or a merge loses is said.
//!
//! Refused, with nothing written: a text with fewer than two chunks or that is not UTF-8, chunks below 16
//! tokens, a model that this build cannot run, an output that exists or is an input (before the run), an input
//! that is not a finite number (with tensor, expert, column and chunk). Experts that saw few tokens are
//! reported; they are stored with the counts they have.

mod args;
mod checkpoint;
mod collect;
mod compare;
mod convert;
mod coverage;
mod fault;
mod files;
mod layers;
mod merge;
mod model;
mod origin;
mod output;
mod run;
mod statistics;
mod summary;
mod sums;
mod talk;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|args: args::Args| run::run(&args))
}
