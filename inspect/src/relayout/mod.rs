//! `gguf-inspect relayout`: the other of the two layouts that files of latent attention (MLA) have.
//!
//! Older files hold the projection from the latent vector to keys and values as one matrix, `attn_kv_b`, and count a
//! key-value head for each head. Newer ones hold it as two stacks with a matrix for each head, `attn_k_b` (transposed)
//! and `attn_v_b`, and count one key-value head. Both hold the same numbers; nothing is computed here.

mod layout;
mod rows;

use std::path::{Path, PathBuf};

use gguf::atomic::AtomicFile;
use gguf::{GgufFile, Layout, Part, Writer};
use gguf_cli::{OutputArgs, Progress, Result, TalkArgs, Unit, count, human_bytes, print_json};
use serde::Serialize;

use layout::{Mla, Source};

/// Give a model with latent attention (MLA) the other of its two layouts
///
/// Old files of DeepSeek-like models hold `attn_kv_b`, new ones `attn_k_b` and `attn_v_b`; programs may read one of them
/// only. The numbers stay as they are, so there and back gives the same tensors. Matrices of blocks (quantized ones)
/// cannot be rearranged: give the model from before quantization.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The model: a file, any shard of a split set, or a folder with one model
    input: PathBuf,
    /// The output, one file
    output: PathBuf,
    /// The layout to write
    #[arg(long, value_enum)]
    to: To,
    /// Show what would be written
    #[arg(long)]
    dry_run: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    existing: OutputArgs,
    #[command(flatten)]
    talk: TalkArgs,
}

/// A layout, named after its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum To {
    /// One matrix: `attn_kv_b`
    #[value(name = "kv_b")]
    KvB,
    /// Two stacks: `attn_k_b` and `attn_v_b`
    #[value(name = "k_b")]
    KB,
}

/// What is written.
#[derive(Serialize)]
struct Report {
    input: String,
    output: String,
    rearranged: usize,
    tensors: usize,
    bytes: u64,
    written: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let file = GgufFile::open(&args.input)?;
    file.require_sound()?;
    let mla = Mla::of(&file, args.to)?;
    let metadata = mla.metadata(&file.metadata);
    let (specs, sources) = mla.tensors(&file)?;
    let layout = Layout::plan(&metadata, specs)?;
    let inputs: Vec<&Path> = file.parts().iter().map(Part::path).collect();
    if args.dry_run {
        let output = (args.output.clone(), layout.total_bytes);
        AtomicFile::check_all(&[output], args.existing.force, &inputs)?;
    } else {
        let progress = Progress::new("rearranging", layout.total_bytes, Unit::Bytes, args.talk.quiet);
        let out = AtomicFile::create(
            &args.output,
            args.existing.force,
            &inputs,
            Some(layout.total_bytes),
        )?;
        let mut writer = Writer::new(out, &layout)?;
        for source in &sources {
            rows::write(&file, source, &mla, &mut |bytes| {
                progress.add(bytes.len() as u64);
                writer.write(bytes)
            })?;
        }
        writer.finish()?.commit()?;
        progress.finish();
    }
    let report = Report {
        input: file.path().display().to_string(),
        output: args.output.display().to_string(),
        rearranged: sources.iter().filter(|s| !matches!(s, Source::Same(_))).count(),
        tensors: layout.tensors.len(),
        bytes: layout.total_bytes,
        written: !args.dry_run,
    };
    gguf_cli::say(&format!(
        "{} `{}`: {} of {} rearranged, {} bytes ({})",
        if args.dry_run { "would write" } else { "wrote" },
        report.output,
        report.rearranged,
        count(report.tensors as u64, "tensor"),
        report.bytes,
        human_bytes(report.bytes)
    ));
    if args.json { print_json(&report) } else { Ok(()) }
}
