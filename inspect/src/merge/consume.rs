//! `merge --in-place-safe`: shards go as their data arrives.

use std::path::{Path, PathBuf};

use gguf::atomic::folder_of;
use gguf::split::{self, Consume, ShardName, Step};
use gguf_cli::{Failure, Progress, Result, Unit, human_bytes};

use super::{Args, Report, finish, no_output, same_set, shards};

pub(super) fn run(args: &Args, inputs: &[PathBuf], out: Option<&Path>) -> Result<()> {
    let (consume, out) = match unfinished(inputs, out) {
        Some(out) => (resume(&out, inputs)?, out),
        None if args.resume => {
            let path = out.unwrap_or(&args.paths[0]);
            return Err(Failure::Usage(format!(
                "no merge to `{}` was stopped: there is no `.merge-journal` beside it",
                path.display()
            )));
        }
        None => {
            let Some(out) = out.filter(|_| !inputs.is_empty()) else {
                return Err(no_output(&args.paths[0]));
            };
            shards::refuse_shard_as_output(out, inputs)?;
            (Consume::plan(&shards::open(inputs)?, out)?, out.to_owned())
        }
    };
    let report = Report {
        output: out.display().to_string(),
        bytes: consume.total_bytes(),
        tensors: consume.n_tensors(),
        shards: consume.shards().iter().map(|p| p.display().to_string()).collect(),
        needs_free_bytes: consume.extra_bytes(),
        deletes_shards: true,
        written: !args.dry_run,
    };
    let progress = Progress::new("merging", consume.work_bytes(), Unit::Bytes, args.talk.quiet);
    if !args.dry_run {
        if consume.n_done() > 0 {
            let (done, of) = (consume.n_done(), report.shards.len());
            progress.note(&format!("going on: {done} of {of} shards are merged already"));
        } else {
            progress.note(&format!(
                "each shard is deleted when its data is proved to be in `{}`; {} of free space are needed",
                out.display(),
                human_bytes(report.needs_free_bytes)
            ));
        }
        consume.run(&mut |step| {
            if let Step::Bytes(n) = step {
                progress.add(n);
            }
            Ok(())
        })?;
    }
    finish(&report, args, progress)
}

/// The output of a merge that was stopped, if the command line names one: as the output, alone, or by a shard that is
/// left of it.
fn unfinished(inputs: &[PathBuf], out: Option<&Path>) -> Option<PathBuf> {
    if let Some(out) = out.filter(|out| split::is_unfinished(out)) {
        return Some(out.to_owned());
    }
    match (inputs, out) {
        ([], Some(shard)) => split::unfinished_of(shard),
        _ => None,
    }
}

/// Takes a stopped merge up; shards that are named must be of it.
fn resume(out: &Path, inputs: &[PathBuf]) -> Result<Consume> {
    let shards = match inputs.first() {
        None => folder_of(out),
        Some(one) if one.is_dir() => one,
        Some(one) => folder_of(one),
    };
    let consume = Consume::resume(out, shards)?;
    let names: Vec<ShardName> = consume
        .shards()
        .iter()
        .filter_map(|p| ShardName::parse(p))
        .collect();
    for input in inputs.iter().filter(|input| !input.is_dir()) {
        let belongs = ShardName::parse(input).is_some_and(|name| names.iter().any(|n| same_set(n, &name)));
        if !belongs {
            return Err(Failure::Input(format!(
                "a merge to `{}` was stopped, and `{}` is not of its set: name its shards, or the output alone",
                out.display(),
                input.display()
            )));
        }
    }
    Ok(consume)
}
