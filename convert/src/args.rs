//! The command line, unresolved.

use std::path::PathBuf;

use gguf_cli::{OutputArgs, ReserveArgs, TalkArgs, ThreadArgs};

/// What `--outtype` takes: names of tensor types, and `auto`.
const OUTTYPES: [&str; 5] = ["auto", "f32", "f16", "bf16", "q8_0"];

/// Convert a Hugging Face checkpoint to one GGUF file.
///
/// Reads config.json, tokenizer.json and the safetensors that the index names. Nothing is written before the
/// whole checkpoint has been checked, and the output appears under its name only when it is complete.
#[derive(Debug, clap::Parser)]
#[command(name = "gguf-convert", version)]
pub struct Args {
    /// Folder of the checkpoint, or the id of a repository in the hub's local cache: ORG/NAME or ORG/NAME@REVISION
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Fetch what the local cache lacks of the id MODEL
    #[arg(long)]
    pub download: bool,
    /// Output file, or a folder for a file with the default name [default: the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Type of the matrices; norms and routers stay f32. auto: bf16 if the checkpoint has that, else f16. For
    /// smaller types give the output to gguf-quantize
    #[arg(long, value_name = "TYPE", default_value = "auto", ignore_case = true, value_parser = OUTTYPES)]
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
    /// Room in the metadata
    #[command(flatten)]
    pub reserve: ReserveArgs,
    /// Show the metadata and the tensors, read no weights and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Report on stdout as JSON
    #[arg(long)]
    pub json: bool,
    /// Whether to replace an output
    #[command(flatten)]
    pub out: OutputArgs,
    /// The pool
    #[command(flatten)]
    pub threads: ThreadArgs,
    /// Progress
    #[command(flatten)]
    pub talk: TalkArgs,
}
