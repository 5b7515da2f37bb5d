//! The command line: one command a module.

use clap::{Parser, Subcommand};

use crate::{check, show};

/// Shows, checks and edits GGUF files; `gguf-inspect FILE` is short for `gguf-inspect show FILE`
#[derive(Debug, Parser)]
#[command(name = "gguf-inspect", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a model is: summary, sizes, metadata, tensors
    Show(show::Args),
    /// List all that is wrong with a model and prove that its tensors lie where they should
    Check(check::Args),
}

impl Command {
    pub(crate) fn run(&self) -> gguf_cli::Result<()> {
        match self {
            Self::Show(args) => show::run(args),
            Self::Check(args) => check::run(args),
        }
    }
}
