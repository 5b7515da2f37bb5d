//! `gguf-inspect`: looks at a GGUF file without running it.
//!
//! `gguf-inspect FILE` shows header, metadata, tensors and totals; `gguf-inspect check FILE` lists everything
//! that is wrong with the file's layout and vocabulary, and proves for each tensor that it lies inside the file,
//! aligned and apart from all others. Where this build describes the file's architecture, the tensors are also
//! compared with what that architecture needs. Only the front of the file is read, never the tensors' data, so that a
//! file of any size takes milliseconds.
//!
//! The way of a call: `args` is the raw command line, `plan` what it means, `run` opens the file and gathers
//! `facts`, `report` puts them in words or JSON.
//!
//! Damaged files are shown as far as they can be read. Opening refuses only what hides the rest: no GGUF magic,
//! a version other than 2 and 3, a head that ends early, claims that the file cannot back. Types that this
//! build does not know and big-endian files are shown like any other.

mod args;
mod facts;
mod plan;
mod report;
mod run;
#[cfg(feature = "tui")]
mod tui;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run_with_default("show", |args: args::Args| run::run(&plan::Plan::from(args)))
}
