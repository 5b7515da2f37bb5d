//! The command line as it was typed. [`crate::job`] says what its arguments mean, [`crate::request`] what its options
//! ask for.

use std::ffi::OsString;
use std::path::PathBuf;

use gguf_cli::Result;

use crate::job::{self, Positional};
use crate::options::{RecipeArgs, WorkArgs};

/// Encode a GGUF model in smaller tensor types
///
/// TYPE is a file type (`Q4_K_M`), an alias (`Q4_K`) or its number (15), or COPY, which keeps the type of every tensor
/// that no option names. Without OUT the result is `ggml-model-TYPE.gguf` beside IN. With `-o DIR` one or more TYPEs
/// are made from one read of IN, as DIR/NAME-TYPE.gguf. NTHREADS of 0 or less means every hardware thread. Options
/// may stand anywhere.
#[derive(Debug, clap::Parser)]
#[command(
    name = "gguf-quantize",
    version,
    override_usage = "gguf-quantize [OPTIONS] IN [OUT] TYPE [NTHREADS]\n       \
                      gguf-quantize [OPTIONS] -o DIR IN TYPE [TYPE ...] [NTHREADS]"
)]
pub(crate) struct Args {
    /// IN [OUT] TYPE [NTHREADS]
    #[arg(
        value_name = "ARGS",
        required = true,
        hide = true,
        allow_negative_numbers = true
    )]
    positional: Vec<OsString>,
    /// Folder for the outputs, which are named after IN and TYPE; allows several TYPEs
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,

    /// Write as many shards as IN has, each with the tensors of IN's shard
    #[arg(long, help_heading = "Output", conflicts_with_all = ["split_max_size", "split_max_tensors"])]
    pub(crate) keep_split: bool,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

impl Args {
    /// What the positional arguments mean.
    pub(crate) fn positional(&self) -> Result<Positional> {
        job::resolve(&self.positional, self.output_dir.as_deref())
    }

    /// Whether outputs go into a folder, so that there may be several.
    pub(crate) fn has_folder(&self) -> bool {
        self.output_dir.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[test]
    fn options_are_in_order() {
        Args::command().debug_assert();
        assert_eq!(gguf_cli::foreign_clashes(&Args::command()), [""; 0]);
    }

    #[test]
    fn memory_has_two_spellings() {
        let memory = |options: &[&str]| {
            Args::try_parse_from([&["gguf-quantize", "i", "Q8_0"], options].concat())
                .map(|a| a.work.max_memory())
                .ok()
        };
        assert_eq!(memory(&[]), Some(1 << 30));
        assert_eq!(memory(&["--max-memory", "256M"]), Some(256 << 20));
        assert_eq!(memory(&["--max-buffer-size", "64"]), Some(64 << 20));
        assert_eq!(memory(&["--max-buffer-size", "64", "--max-memory", "1G"]), None);
        assert_eq!(memory(&["--max-memory", "0"]), None);
    }
}
