//! `gguf-inspect`: looks at GGUF files without running them.
//!
//! Each command is a module with its `Args` and a `run`; [`args`] is the list of them. `show`, the usual one, says what
//! a model is; `check` lists everything that is wrong with it and proves for each tensor that it lies inside the file,
//! aligned and apart from all others.
//!
//! A model is one file, the shards of a split set (any of them names the set), a folder with one model, or, with
//! feature `http`, a file on a server. Only the front of a file is read where the weights themselves are not asked
//! for, so that a model of any size takes milliseconds.
//!
//! Damaged models are shown as far as they can be read. Opening refuses only what hides the rest: no GGUF magic,
//! a version other than 2 and 3, a head that ends early, claims that the file cannot back. Types that this
//! build does not know, big-endian files and sets with shards missing are shown like any other.

mod args;
mod check;
mod json;
mod show;
#[cfg(feature = "tui")]
mod tui;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run_with_default("show", |args: args::Args| args.command.run())
}
