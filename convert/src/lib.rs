//! `gguf-convert`: from a Hugging Face checkpoint to one GGUF file.
//!
//! A checkpoint is a folder: settings in `config.json`, a tokenizer in `tokenizer.json`, and weights in
//! safetensors files that `model.safetensors.index.json` lists. All that is particular to an architecture comes
//! from its description in `gguf-models`: which settings become which keys, which tensor names stand for which
//! roles, and how stacks of experts are put together. This crate knows files, not models.
//!
//! The work has two steps.
//!
//! - [`Plan::new`] reads everything but the weights and decides everything: metadata, the tensors with names,
//!   shapes and types, their offsets and the size of the output to the byte, and for every tensor the stretches
//!   of source files that hold its rows. Headers are checked against the files' real lengths, the index against
//!   the headers, the tensors against the architecture, the tokenizer's patterns against those known. What does
//!   not fit is refused here, before an output exists.
//! - [`write()`] streams the rows into the output: chunk after chunk, converted in parallel, written in order.
//!   A stack of experts is never in memory as a whole, so memory is the same for every size of model. The output
//!   appears under its name when it is complete.
//!
//! The output equals that of the reference converter: the same keys with the same types in the same order, the
//! same tensor order, the same bytes, for any number of threads.
//!
//! Refused, each with one line: quantized checkpoints, tensors that the architecture has no place for, settings
//! that its description does not cover, tokenizers that are not byte-level BPE, pre-tokenizers that no name is
//! known for (unless `--pre` gives one), tokens beyond the embedding, values that are no numbers, and values that
//! the output's type cannot hold. Code that comes with a checkpoint is never run, and no path goes into the output.

mod args;
mod error;
#[cfg(test)]
mod golden_tests;
mod hub;
mod map;
mod name;
mod outtype;
mod overrides;
mod plan;
mod report;
mod source;
mod view;
mod vocab;
mod write;

use std::path::PathBuf;

use gguf_cli::{Progress, Unit};

pub use args::Args;
pub use error::{Error, Result};
pub use plan::{Options, Plan};
pub use write::write;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(run)
}

fn run(args: Args) -> gguf_cli::Result<()> {
    let options = Options {
        outtype: args.outtype,
        model_name: args.model_name,
        pre: args.pre,
        reserve: args.reserve,
        metadata: args.metadata,
        no_mtp: args.no_mtp,
    };
    let dir = hub::locate(&args.model, args.download, args.talk.quiet)?;
    let plan = Plan::new(&dir, &options)?;
    plan.notes.iter().for_each(|note| gguf_cli::warn(note));
    let output = output_path(args.output, &plan);
    if !args.dry_run {
        let pool = args.threads.pool()?;
        let progress = Progress::new(
            "converting",
            plan.layout.total_bytes,
            Unit::Bytes,
            args.talk.quiet,
        );
        pool.install(|| write::write(&plan, &output, args.out.force, &progress))?;
        progress.note(&format!("wrote {}", report::summary(&plan, &output)));
        progress.finish();
    }
    if args.json {
        gguf_cli::print_json(&report::json(&plan, &output, !args.dry_run))
    } else if args.dry_run {
        gguf_cli::print_data(&report::text(&plan, &output))
    } else {
        Ok(())
    }
}

/// The file to write: under the default name where a folder is given, or nothing.
fn output_path(output: Option<PathBuf>, plan: &Plan) -> PathBuf {
    match output {
        Some(path) if path.is_dir() => path.join(&plan.default_file_name),
        Some(path) => path,
        None => PathBuf::from(&plan.default_file_name),
    }
}
