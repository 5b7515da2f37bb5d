//! `gguf-quantize`: encodes a GGUF model in smaller tensor types.
//!
//! A file type such as `Q4_K_M` stands for a base type and a mixture around it. The program goes through
//! four stages, and only the last one reads weights:
//!
//! 1. [`Args`]: the command line.
//! 2. [`policy`]: pure functions from tensor names, shapes and a few facts of the model to a type for each
//!    tensor, with a reason.
//! 3. [`plan`]: the policy applied to a file, with every check that can be made without weights: types that
//!    this build can decode and encode, importance that fits, rules that match, the exact size of the output.
//!    `--dry-run` prints it and stops.
//! 4. the stream: slabs of rows are read by position, decoded to f32, encoded in parallel and written in
//!    order. Memory is a few slabs of 8 MiB (or a few rows, where a row is larger), whatever the file's size.
//!
//! The same input gives the same bytes for any number of threads. Tensors are stored in processing order:
//! those outside layers first, then layer by layer, by name. A tensor whose type does not change is copied.
//!
//! Refused, with nothing written: inputs that are not sound GGUF, a single shard of a set, types that this
//! build cannot encode, quantized sources without `--allow-requantize`, an importance matrix of another model
//! or with values that are not finite, very small types without importance, weights that are not finite (with
//! tensor, row and column), an output that exists or is an input. Rows that are not whole blocks of the type
//! that the mixture chose get a fallback type and a warning (`--strict` makes it an error); a type that the
//! user asked for by name is never replaced in silence.

mod args;
mod guide;
mod job;
mod metadata;
pub mod plan;
pub mod policy;
mod report;
mod request;
mod stream;

use std::path::Path;
use std::time::Instant;

use gguf::atomic::AtomicFile;
use gguf::{GgufFile, Writer};
use gguf_cli::{Failure, Progress, Result, Unit, count, print_data, print_json};

pub use args::Args;
pub use guide::Guide;

use job::{Job, Target};
use plan::Plan;
use request::Request;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|args: Args| run(&args))
}

fn run(args: &Args) -> Result<()> {
    let job = args.job()?;
    let request = args.request(&job)?;
    let guide = args
        .imatrix_path()
        .map(|p| Guide::load(p, &args.include_weights, &args.exclude_weights))
        .transpose()?;
    let file = GgufFile::open(&job.input)?;
    file.require_sound()?;
    for target in &job.targets {
        run_target(args, &job, target, &request, guide.as_ref(), &file)?;
    }
    Ok(())
}

fn run_target(
    args: &Args,
    job: &Job,
    target: &Target,
    request: &Request,
    guide: Option<&Guide>,
    file: &GgufFile,
) -> Result<()> {
    let wish = request.wish(target, guide.is_some());
    let mut plan = Plan::new(file, &wish, guide, args.allow_requantize, args.reserve)?;
    if args.strict && plan.n_fallback > 0 {
        let what = format!(
            "`--strict` forbids fallback types, found {} that would get one",
            count(plan.n_fallback as u64, "tensor")
        );
        return Err(Failure::Input(what));
    }
    let out = match output(args, job, target, file, &plan) {
        Ok(out) => Some(out).filter(|_| !args.dry_run),
        Err(e) if args.dry_run => {
            plan.warnings.push(e.to_string());
            None
        }
        Err(e) => return Err(e),
    };
    let progress = Progress::new("quantize", plan.source_bytes(), Unit::Bytes, args.talk.quiet);
    plan.warnings.iter().for_each(|line| gguf_cli::warn(line));
    plan.notes.iter().for_each(|line| progress.note(line));
    let Some(out) = out else {
        progress.finish();
        return print_plan(args, job, target, &plan);
    };
    let start = Instant::now();
    let mut writer = Writer::new(out, &plan.layout)?;
    let pool = gguf_cli::thread_pool(job.threads)?;
    pool.install(|| stream::run(file, &plan, guide, &mut writer, &|n| progress.add(n)))?;
    writer.finish()?.commit()?;
    let took = start.elapsed();
    progress.note(&report::summary(target, &plan, Some(took)));
    progress.finish();
    if args.json {
        print_json(&report::of(job, target, &plan, Some(took)))
    } else {
        Ok(())
    }
}

fn print_plan(args: &Args, job: &Job, target: &Target, plan: &Plan) -> Result<()> {
    if args.json {
        return print_json(&report::of(job, target, plan, None));
    }
    print_data(&format!(
        "{}\n{}",
        report::table(plan),
        report::summary(target, plan, None)
    ))
}

/// Starts the output; what cannot be written is refused here, before any work.
fn output(args: &Args, job: &Job, target: &Target, file: &GgufFile, plan: &Plan) -> Result<AtomicFile> {
    let shards = file.parts().iter().map(gguf::Part::path);
    let inputs: Vec<&Path> = std::iter::once(job.input.as_path())
        .chain(shards)
        .chain(args.imatrix_path())
        .collect();
    Ok(AtomicFile::create(
        &target.output,
        args.output.force,
        &inputs,
        Some(plan.layout.total_bytes),
    )?)
}
