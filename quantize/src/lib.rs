//! `gguf-quantize`: encodes a GGUF model in smaller tensor types.
//!
//! A file type such as `Q4_K_M` stands for a base type and a mixture around it. The library works on any opened
//! [`gguf::GgufFile`], also on one that is computed as it is read: a [`Job`] says what is to be made of it, [`run`] does
//! it. Other programs take the options as [`RecipeArgs`] and [`WorkArgs`]. A run decides everything before it touches a
//! weight:
//!
//! 1. `args`: the command line as typed, `options` the groups of it that others share; `job` says what is read and made,
//!    `request` what the options ask for.
//! 2. `policy`: pure functions from tensor names, shapes and a few facts of the model to a type for each tensor, with
//!    a reason. The mixtures are a table, `policy/mixture.rs`.
//! 3. `plan`: the policy applied to a file, for each target: types that this build can decode and encode, importance
//!    that fits (`guide`), rules that match. Problems are gathered, not met one by one. `shards` lays the tensors out
//!    in files, to the byte, and says which of them this run writes.
//! 4. `run`, called by `program`, which shows its results: `--dry-run` ends here. Else the `engine` reads rows by
//!    position, decodes them once, encodes them for each target and writes them by position, on all threads; `source`
//!    computes the source's digest beside it; the heads come last; `verify` reads samples back; then the outputs get
//!    their names, all together.
//!
//! The same input gives the same bytes for any number of threads, for one run or many parts, for a run that was stopped
//! and resumed. Tensors are stored in processing order: those outside layers first, then layer by layer, by name (with
//! `--keep-split` in the source's order). A tensor whose type does not change is copied. Memory is rows in work, whatever
//! the size of tensors; the importance matrix stays in its file.
//!
//! Refused, with nothing written: inputs that are not sound GGUF, a set with a shard missing, types that this build
//! cannot encode, quantized sources without `--allow-requantize`, an importance matrix of another model or with values
//! that are not finite, very small types without importance, rules that are too many or take too much memory, an
//! output that exists or is an input, too little space, rows that do not fit the memory. Weights that are not finite end a run with
//! tensor, matrix, row and column. Rows that are not whole blocks of the type that the mixture chose get a fallback type
//! and a warning (`--strict` makes it an error); a type that the user asked for by name is never replaced in silence.

mod args;
mod engine;
mod guide;
mod job;
mod metadata;
mod options;
mod pattern;
mod plan;
mod policy;
mod program;
mod report;
mod request;
mod run;
mod shards;
mod source;
mod verify;

use args::Args;

pub use engine::{Fault, first_not_finite};
pub use job::{Arrangement, Job, Kind, Target, parse_file_type};
pub use options::{Part, RecipeArgs, Uncovered, WorkArgs};
pub use run::{Results, Run, Show, run};

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|args: Args| program::run(&args))
}
