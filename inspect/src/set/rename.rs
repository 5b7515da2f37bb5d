//! `gguf-inspect rename-key`.

use std::path::PathBuf;

use gguf::edit::Change;
use gguf_cli::Result;

use super::EditArgs;

/// Give a metadata value another key, in place where it fits
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The GGUF file; of a split set its first shard
    file: PathBuf,
    /// The key that is there
    old: String,
    /// The key that it becomes
    new: String,
    #[command(flatten)]
    edit: EditArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let change = Change::Rename {
        from: args.old.clone(),
        to: args.new.clone(),
    };
    args.edit.job(&args.file)?.run(|_, _| Ok(vec![change]))
}
