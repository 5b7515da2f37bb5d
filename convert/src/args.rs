//! The command line, unresolved.

use std::path::PathBuf;

use gguf_cli::ThreadArgs;
use gguf_quantize::{RecipeArgs, WorkArgs};

use crate::outtype::PLAIN;

/// Convert a Hugging Face checkpoint to GGUF, in any type
///
/// Reads config.json, the tokenizer and the safetensors that the index names. Nothing is written before the whole
/// checkpoint has been checked, and outputs appear under their names only when they are complete.
#[derive(Debug, clap::Parser)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
#[command(name = "gguf-convert", version)]
pub struct Args {
    /// Folder of the checkpoint, or the id of a repository in the hub's local cache: ORG/NAME or ORG/NAME@REVISION
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Fetch what the local cache lacks of the id MODEL
    #[arg(long)]
    pub download: bool,
    /// Output file, or a folder for a file with the default name [default: the current folder]
    #[arg(short, long, alias = "outfile", value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Type of the matrices: auto (bf16 if the checkpoint has that, else f16), f32, f16, bf16, `q8_0`, `tq1_0` or `tq2_0`;
    /// norms and routers stay f32. Or any file type of gguf-quantize, such as `Q4_K_M`, made in the same pass
    #[arg(long, value_name = "TYPE", default_value = "auto")]
    pub outtype: String,
    /// Name of the model [default: made from the folder's name]
    #[arg(long, value_name = "NAME")]
    pub model_name: Option<String>,
    /// JSON file with an object of metadata keys to set: any key that the model has, and any that begins with general.
    #[arg(long, value_name = "FILE")]
    pub metadata: Option<PathBuf>,
    /// Pre-tokenizer to name in the output, where that of tokenizer.json is not recognised
    #[arg(long, value_name = "NAME", long_help = crate::vocab::pre_help())]
    pub pre: Option<String>,
    /// Leave out layers that predict further tokens, for architectures that can have them
    #[arg(long)]
    pub no_mtp: bool,
    /// Write metadata and vocabulary, and no tensors
    #[arg(long)]
    pub vocab_only: bool,
    /// Keep all quantized weights of the checkpoint that a GGUF type holds without a change: MXFP4 and NVFP4 (which
    /// auto keeps, too), and INT4 in groups of 32 as `Q4_0` where F16 holds its scales
    #[arg(long)]
    pub repack: bool,
    /// Type that weights are taken in before they are encoded in the types of a file type
    #[arg(long, value_name = "TYPE", ignore_case = true, value_parser = PLAIN)]
    pub via: Option<String>,
    /// Keep tensors with values beyond the range of TYPE in the checkpoint's type or f32, instead of refusing them; this
    /// reads all weights twice
    #[arg(long)]
    pub keep_wide: bool,
    /// What the tensors become, where TYPE is a file type of gguf-quantize
    #[command(flatten)]
    pub recipe: Given<RecipeArgs>,
    /// Which files come out, and how
    #[command(flatten)]
    pub work: WorkArgs,
    /// The pool
    #[command(flatten)]
    pub threads: ThreadArgs,
}

/// Options, and the first of them that stands on the command line.
#[derive(Clone, Debug)]
pub struct Given<T> {
    /// The options.
    pub options: T,
    /// The name of one that was given, with its dashes.
    pub first: Option<String>,
}

impl<T: clap::Args> clap::Args for Given<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        T::augment_args_for_update(command)
    }
}

impl<T: clap::Args> clap::FromArgMatches for Given<T> {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let own = T::augment_args(clap::Command::new(""));
        let typed = |arg: &&clap::Arg| {
            matches.value_source(arg.get_id().as_str()) == Some(clap::parser::ValueSource::CommandLine)
        };
        let first = own.get_arguments().find(typed).and_then(clap::Arg::get_long);
        Ok(Self {
            first: first.map(|name| format!("--{name}")),
            options: T::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::{CommandFactory, Parser};

    use super::Args;

    #[test]
    fn the_output_has_the_name_of_the_reference_too() {
        Args::command().debug_assert();
        assert_eq!(gguf_cli::foreign_clashes(&Args::command()), [""; 0]);
        let args = Args::try_parse_from(["x", "model", "--outfile", "o.gguf"]).expect("an alias");
        assert_eq!(args.output.as_deref(), Some(Path::new("o.gguf")));
    }
}
