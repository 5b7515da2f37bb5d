//! `gguf-quantize`: encodes a GGUF model in smaller tensor types.
//!
//! A file type such as `Q4_K_M` stands for a base type and a mixture around it. The program goes through
//! four stages, and only the last one reads weights:
//!
//! 1. [`Args`]: the command line.
//! 2. [`policy`]: pure functions from tensor names, shapes and a few facts of the model to a type for each
//!    tensor, with a reason.
//! 3. [`plan`]: the policy applied to a file, with every check that can be made without weights: types that
//!    this build can decode and encode, importance that fits, rules that match, the exact size of the output.
//!    `--dry-run` prints it and stops.
//! 4. the stream: slabs of rows are read by position, decoded to f32, encoded in parallel and written in
//!    order. Memory is a few slabs of 8 MiB (or a few rows, where a row is larger), whatever the file's size.
//!
//! The same input gives the same bytes for any number of threads. Tensors are stored in processing order:
//! those outside layers first, then layer by layer, by name. A tensor whose type does not change is copied.
//!
//! Refused, with nothing written: inputs that are not sound GGUF, a single shard of a set, types that this
//! build cannot encode, quantized sources without `--allow-requantize`, an importance matrix of another model
//! or with values that are not finite, very small types without importance, weights that are not finite (with
//! tensor, row and column), an output that exists or is an input. Rows that are not whole blocks of the type
//! that the mixture chose get a fallback type and a warning (`--strict` makes it an error); a type that the
//! user asked for by name is never replaced in silence.

mod args;
mod engine;
mod guide;
mod job;
mod metadata;
pub mod plan;
pub mod policy;
mod report;
mod request;
mod run;
mod shards;
mod source;
mod verify;

pub use args::Args;
pub use guide::Guide;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|args: Args| run::run(&args))
}
