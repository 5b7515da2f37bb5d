//! `gguf-inspect unset`.

use std::path::PathBuf;

use gguf::edit::Change;
use gguf_cli::Result;

use super::EditArgs;

/// Remove metadata keys, in place where it fits
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The GGUF file; of a split set its first shard
    file: PathBuf,
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    edit: EditArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let changes = args.keys.iter().cloned().map(Change::Unset).collect();
    args.edit.job(&args.file)?.run(|_, _| Ok(changes))
}
