//! `gguf-inspect merge`: a split set as one file.

mod consume;
mod shards;

use std::path::{Path, PathBuf};

use gguf::atomic::AtomicFile;
use gguf::split::{self, ShardName};
use gguf::{GgufFile, Part, validate};
use gguf_cli::{
    Failure, OutputArgs, Progress, Result, TalkArgs, Unit, count, human_bytes, print_json, warn, write_report,
};
use serde::Serialize;

/// Merge the shards of a split set into one file
///
/// The shards are given in any order, or one of them, or their folder; the output is the last argument, or stands
/// behind `-o`. Splitting and merging gives the original file back, byte for byte.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub(crate) struct Args {
    /// Shards in any order, or one of them, or their folder; then the output, unless `-o` names it
    #[arg(required = true, value_name = "SHARD.. OUT")]
    paths: Vec<PathBuf>,
    /// The output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// For a nearly full disk: DELETE each shard as soon as its data is proved to be in the output
    ///
    /// Needs free space for the largest shard only. Each shard is copied into a part file beside the output, flushed,
    /// read again and compared by SHA-256, recorded in a journal, and then DELETED. Stopped at any moment, the
    /// same command goes on where it was; nothing is lost. When it is done, the output is all that is left.
    #[arg(long, conflicts_with = "force")]
    in_place_safe: bool,
    /// With --in-place-safe: only go on with a merge that was stopped
    #[arg(long, requires = "in_place_safe")]
    resume: bool,
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
    output: String,
    bytes: u64,
    tensors: usize,
    shards: Vec<String>,
    /// Free bytes that are needed while it runs.
    needs_free_bytes: u64,
    deletes_shards: bool,
    written: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (inputs, out) = shards::take_apart(&args.paths, args.output.as_deref());
    if args.in_place_safe {
        return consume::run(args, inputs, out);
    }
    let Some(out) = out.filter(|_| !inputs.is_empty()) else {
        return Err(no_output(&args.paths[0]));
    };
    shards::refuse_shard_as_output(out, inputs)?;
    let set = shards::open(inputs)?;
    let layout = split::merged(&set)?;
    let report = Report {
        output: out.display().to_string(),
        bytes: layout.total_bytes,
        tensors: layout.tensors.len(),
        shards: names(&set),
        needs_free_bytes: layout.total_bytes,
        deletes_shards: false,
        written: !args.dry_run,
    };
    let progress = Progress::new("merging", report.bytes, Unit::Bytes, args.talk.quiet);
    if args.dry_run {
        let inputs: Vec<&Path> = set.parts().iter().map(Part::path).collect();
        AtomicFile::check_all(&[(out.to_owned(), report.bytes)], args.existing.force, &inputs)?;
    } else {
        split::merge(&set, &layout, out, args.existing.force, &mut |n| {
            progress.add(n);
            Ok(())
        })?;
    }
    finish(&report, args, progress)
}

fn finish(report: &Report, args: &Args, progress: Progress) -> Result<()> {
    let line = format!(
        "{} `{}`: {}, {}, {} bytes ({})",
        if report.written { "wrote" } else { "would write" },
        report.output,
        count(report.shards.len() as u64, "shard"),
        count(report.tensors as u64, "tensor"),
        report.bytes,
        human_bytes(report.bytes)
    );
    if args.json {
        progress.finish();
        return print_json(report);
    }
    if report.written {
        progress.note(&line);
        progress.finish();
        return Ok(());
    }
    progress.finish();
    let deletes = if report.deletes_shards {
        format!(
            ", deleting each shard on the way, with {} bytes free",
            report.needs_free_bytes
        )
    } else {
        String::new()
    };
    write_report(|out| {
        report
            .shards
            .iter()
            .try_for_each(|shard| writeln!(out, "{shard}"))?;
        writeln!(out, "{line}{deletes}")
    })
}

fn names(set: &GgufFile) -> Vec<String> {
    set.parts()
        .iter()
        .map(|p| p.path().display().to_string())
        .collect()
}

fn no_output(path: &Path) -> Failure {
    Failure::Usage(format!(
        "`{}` is the only file named: name the output behind the shards, or with `-o`",
        path.display()
    ))
}

/// Findings that do not stop a merge, but that a user wants to know of.
fn warn_of_oddities(set: &GgufFile) {
    for finding in validate::layout(set).into_iter().filter(|f| !f.severe) {
        let path = set.parts()[finding.part].path();
        warn(&format!(
            "`{}`: {}: {}",
            path.display(),
            finding.object,
            finding.what
        ));
    }
}

/// Whether two names are of one set.
fn same_set(a: &ShardName, b: &ShardName) -> bool {
    let real = |name: &ShardName| {
        let folder = match name.prefix().parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        folder.canonicalize().ok()
    };
    a.count == b.count && a.prefix().file_name() == b.prefix().file_name() && real(a) == real(b)
}
