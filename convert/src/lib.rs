//! `gguf-convert`: from a Hugging Face checkpoint to GGUF, in any type.
//!
//! A checkpoint is a folder: settings in `config.json`, a tokenizer in one of several forms, and weights in
//! safetensors files that `model.safetensors.index.json` lists. All that is particular to an architecture comes
//! from its description in `gguf-models`: which settings become which keys, which tensor names stand for which
//! roles, and how stacks of experts are put together. This crate knows files, not models.
//!
//! A checkpoint is a GGUF file that is computed as it is read.
//!
//! - [`Plan::new`] reads everything but the weights and decides everything: metadata, the tensors with names, shapes and
//!   types, their offsets and the size of the file to the byte, and for every tensor the views of stored matrices that
//!   its rows are. Headers are checked against the files' real lengths, the index against the headers, the tensors
//!   against the architecture, the tokenizer's patterns against those known. What does not fit is refused here, before
//!   an output exists.
//! - [`open_checkpoint`] has the plan as an opened [`gguf::GgufFile`]. Any bytes of it can be read at any time, on any
//!   thread: the head, padding, or rows converted on the spot (`virtual_file`). A stack of experts is never in memory
//!   as a whole, so memory is the same for every size of model.
//! - The program (`run`) gives the opened file to the engine of `gguf-quantize`. A plain conversion copies its tensors;
//!   a file type such as `Q4_K_M` is a quantization of the virtual BF16 file, without a file in between. Shards, parts
//!   of the work, limits of memory and stopped runs are the engine's, and so outputs appear under their names when they
//!   are complete.
//!
//! A plain conversion equals that of the reference converter: the same keys with the same types in the same order, the
//! same tensor order, the same bytes, for any number of threads. A file type gives the bytes that a conversion and a
//! quantization of its result give.
//!
//! Quantized checkpoints are read as the numbers that they stand for: FP8, `compressed-tensors`, MXFP4, NVFP4, GPTQ,
//! AWQ and `BitNet`. The tensors decide which weights are quantized, the settings tell what tensors do not show. Rows of
//! MXFP4, NVFP4 and symmetric INT4 groups of 32 can also be taken as the GGUF blocks that hold the same values.
//!
//! The vocabulary (`vocab`) comes from tokenizer.json, `tokenizer.model`, lists of ranks or vocab.json, by what these
//! files hold. When an output is complete, its vocabulary is run beside the checkpoint's own tokenizer on hard texts
//! and every added token, and ids that differ are an error.
//!
//! Refused, each with one line: quantization methods without a decoder, tensors that the architecture has no place for, settings
//! that its description does not cover, tokenizers that GGUF has no form for, pre-tokenizers that no name is
//! known for (unless `--pre` gives one), tokens beyond the embedding, values that are no numbers, and values that
//! the output's type cannot hold. Code that comes with a checkpoint is never run, and no path goes into the output.

mod args;
mod error;
#[cfg(test)]
mod golden_tests;
mod hub;
mod map;
mod name;
mod open;
mod outtype;
mod overrides;
mod plan;
mod repack;
mod report;
mod run;
#[cfg(test)]
#[path = "../../tests/src/skip.rs"]
mod skip;
mod source;
mod view;
mod virtual_file;
mod vocab;

pub use args::Args;
pub use error::{Error, Result};
pub use open::{Checkpoint, open_checkpoint};
pub use plan::{Options, Plan};

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|args: Args| run::run(&args))
}
