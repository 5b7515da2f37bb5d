//! `gguf-inspect split`: one model as several files.

use std::path::{Path, PathBuf};

use gguf::atomic::AtomicFile;
use gguf::split::{self, Limits, Shard, ShardName};
use gguf::{GgufFile, Part, limits};
use gguf_cli::{
    Failure, OutputArgs, Progress, Result, TalkArgs, Unit, count, human_bytes, parse_decimal_size,
    print_json, table, write_report,
};
use serde::Serialize;

/// Tensors to a shard where no limit is given, as in llama.cpp.
const USUAL_TENSORS: u64 = 128;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The model: a file, any shard of a split set, which is split anew, or a folder with one model
    input: PathBuf,
    /// Folder and name of the shards, to which `-00001-of-00003.gguf` is added; in a folder the model's name is used
    output: PathBuf,
    /// Most bytes of tensor data in a shard: 4M, 2G (decimal units, as in llama.cpp)
    #[arg(long, value_name = "SIZE", value_parser = parse_decimal_size, conflicts_with = "max_tensors")]
    #[arg(alias = "split-max-size")]
    max_size: Option<u64>,
    /// Most tensors in a shard; 128 if there is no limit
    #[arg(long, value_name = "N", alias = "split-max-tensors")]
    max_tensors: Option<u64>,
    /// Put the metadata alone into the first shard
    #[arg(long)]
    no_tensor_first_split: bool,
    /// Show the plan and write nothing
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

/// What is written.
#[derive(Serialize)]
struct Report {
    input: String,
    tensors: usize,
    bytes: u64,
    shards: Vec<ShardReport>,
    written: bool,
}

#[derive(Serialize)]
struct ShardReport {
    file: String,
    tensors: usize,
    first_tensor: Option<String>,
    bytes: u64,
}

impl Report {
    fn of(file: &GgufFile, shards: &[Shard], outputs: &[(PathBuf, u64)], written: bool) -> Self {
        let reports = shards
            .iter()
            .zip(outputs)
            .map(|(shard, (path, bytes))| ShardReport {
                file: path.display().to_string(),
                tensors: shard.layout.tensors.len(),
                first_tensor: shard.layout.tensors.first().map(|t| t.name.clone()),
                bytes: *bytes,
            });
        Self {
            input: file.path().display().to_string(),
            tensors: file.tensors.len(),
            bytes: outputs.iter().map(|(_, bytes)| bytes).sum(),
            shards: reports.collect(),
            written,
        }
    }

    fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .shards
            .iter()
            .map(|s| {
                vec![
                    s.file.clone(),
                    s.tensors.to_string(),
                    s.first_tensor.clone().unwrap_or_else(|| "-".to_owned()),
                    s.bytes.to_string(),
                ]
            })
            .collect();
        table(&["shard", "tensors", "first tensor", "bytes"], &rows, &[1, 3])
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let file = GgufFile::open(&args.input)?;
    file.require_sound()?;
    let limits = match (args.max_size, args.max_tensors) {
        (Some(bytes), _) => Limits::Bytes(bytes),
        (None, n) => Limits::Tensors(n.unwrap_or(USUAL_TENSORS)),
    };
    let shards = split::plan(&file, limits, args.no_tensor_first_split)?;
    let prefix = prefix(&args.output, file.path())?;
    let outputs = split::outputs(&shards, &prefix);
    let report = Report::of(&file, &shards, &outputs, !args.dry_run);
    let progress = Progress::new("splitting", report.bytes, Unit::Bytes, args.talk.quiet);
    if !args.json {
        write_report(|out| writeln!(out, "{}", report.text()))?;
    }
    notices(&report, &shards, limits, &progress);
    if args.dry_run {
        let inputs: Vec<&Path> = file.parts().iter().map(Part::path).collect();
        AtomicFile::check_derived(&outputs, args.existing.force, &inputs)?;
    } else {
        split::write(&file, &shards, &prefix, args.existing.force, &mut |n| {
            progress.add(n);
            Ok(())
        })?;
    }
    progress.note(&format!(
        "{} {}, {}, {} bytes ({})",
        if args.dry_run { "would write" } else { "wrote" },
        count(report.shards.len() as u64, "shard"),
        count(report.tensors as u64, "tensor"),
        report.bytes,
        human_bytes(report.bytes)
    ));
    progress.finish();
    if args.json { print_json(&report) } else { Ok(()) }
}

/// Says where a shard is not what a user may expect.
fn notices(report: &Report, shards: &[Shard], limits: Limits, progress: &Progress) {
    if report.shards.len() == 1 {
        progress.note("notice: the whole model is within the limit: one shard");
    }
    let Limits::Bytes(limit) = limits else {
        return;
    };
    for shard in shards {
        let Some(tensor) = shard.layout.tensors.first() else {
            continue;
        };
        let alignment = shard.layout.alignment.max(limits::DEFAULT_ALIGNMENT);
        if tensor.n_bytes.next_multiple_of(alignment) > limit {
            progress.note(&format!(
                "notice: tensor `{}` has {} bytes, more than the limit: it gets a shard of its own",
                tensor.name, tensor.n_bytes
            ));
        }
    }
}

/// Folder and name of the shards.
fn prefix(output: &Path, input: &Path) -> Result<PathBuf> {
    if !output.is_dir() && !output.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Ok(output.to_owned());
    }
    let name = match ShardName::parse(input) {
        Some(name) => name.prefix().file_name().map(ToOwned::to_owned),
        None => input.file_stem().map(ToOwned::to_owned),
    };
    match name {
        Some(name) => Ok(output.join(name)),
        None => Err(Failure::Usage(format!(
            "`{}` is a folder: give a name for the shards in it",
            output.display()
        ))),
    }
}
