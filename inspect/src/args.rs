//! The command line: one command a module.

use clap::{Parser, Subcommand};

use crate::{check, diff, estimate, hash, merge, relayout, report, set, show, split};

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
    /// Compare two models: metadata, tensors and, with `--data`, the error of the weights
    Diff(diff::Args),
    /// Print or verify SHA-256 digests of files, tensors and metadata
    Hash(hash::Args),
    /// Write a page about a model for a browser
    Report(report::Args),
    /// Estimate the memory to run a model: weights, cache, compute buffers
    Estimate(estimate::Args),
    /// Write one model as several files
    Split(split::Args),
    /// Write the shards of a split set as one file
    Merge(merge::Args),
    /// Give a model with latent attention (MLA) the other of its two layouts
    Relayout(relayout::Args),
    /// Set metadata keys, in place where it fits
    Set(set::Args),
    /// Remove metadata keys, in place where it fits
    Unset(set::unset::Args),
    /// Give a metadata value another key, in place where it fits
    RenameKey(set::rename::Args),
}

impl Command {
    pub(crate) fn run(&self) -> gguf_cli::Result<()> {
        match self {
            Self::Show(args) => show::run(args),
            Self::Check(args) => check::run(args),
            Self::Diff(args) => diff::run(args),
            Self::Hash(args) => hash::run(args),
            Self::Report(args) => report::run(args),
            Self::Estimate(args) => estimate::run(args),
            Self::Split(args) => split::run(args),
            Self::Merge(args) => merge::run(args),
            Self::Relayout(args) => relayout::run(args),
            Self::Set(args) => set::run(args),
            Self::Unset(args) => set::unset::run(args),
            Self::RenameKey(args) => set::rename::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Args;

    #[test]
    fn options_are_in_order() {
        Args::command().debug_assert();
        assert_eq!(gguf_cli::foreign_clashes(&Args::command()), [""; 0]);
    }
}
