//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// Shows and checks GGUF files; `gguf-inspect FILE` is short for `gguf-inspect show FILE`
#[derive(Debug, Parser)]
#[command(name = "gguf-inspect", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show header, metadata, tensors and totals
    Show(ShowArgs),
    /// List all that is wrong with a file and prove that its tensors lie where they should
    Check(CheckArgs),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ShowArgs {
    /// The GGUF file
    pub(crate) file: PathBuf,
    /// Write JSON, with arrays and strings in full
    #[arg(long)]
    pub(crate) json: bool,
    /// Only the tensors
    #[arg(long)]
    pub(crate) tensors: bool,
    /// Only the metadata
    #[arg(long)]
    pub(crate) metadata: bool,
    /// Only the value of this metadata key, in full; an array as one line for each element
    #[arg(long, value_name = "KEY", conflicts_with_all = ["tensors", "metadata"])]
    pub(crate) key: Option<String>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct CheckArgs {
    /// The GGUF file
    pub(crate) file: PathBuf,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Fail on warnings too
    #[arg(long)]
    pub(crate) strict: bool,
}
