//! `gguf-inspect`: looks at GGUF files without running them.
//!
//! Each command is a module with its `Args` and a `run`; [`args`] is the list of them. `show`, the usual one, says what
//! a model is; `check` lists everything that is wrong with it and proves for each tensor that it lies inside the file,
//! aligned and apart from all others; `diff` compares two models and `hash` makes and verifies digests.
//! `split` and `merge` turn one file into several and back, byte for byte; `set`,
//! `unset` and `rename-key` change metadata, in place where it fits; `relayout` rearranges latent attention. These write through [`gguf::split`] and
//! [`gguf::edit`], which decide every byte.
//!
//! A model is one file, the shards of a split set (any of them names the set), a folder with one model, or, with
//! feature `http`, a file on a server. Only the front of a file is read where the weights themselves are not asked
//! for, so that a model of any size takes milliseconds. Where they are (`check --data`, `diff --data`, `hash`), `walk` reads
//! them once, in pieces, on all threads and with the same result for any number of them.
//!
//! Damaged models are shown as far as they can be read. Opening refuses only what hides the rest: no GGUF magic,
//! a version other than 2 and 3, a head that ends early, claims that the file cannot back. Types that this
//! build does not know, big-endian files and sets with shards missing are shown like any other.

mod args;
mod check;
mod diff;
mod estimate;
mod hash;
mod json;
mod merge;
mod relayout;
mod report;
mod set;
mod show;
mod split;
#[cfg(feature = "tui")]
mod tui;
mod walk;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run_with_default("show", |args: args::Args| args.command.run())
}
