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
mod metadata;
pub mod plan;
pub mod policy;
mod report;
mod stream;

use std::path::Path;
use std::time::Instant;

use gguf::atomic::AtomicFile;
use gguf::{GgufFile, Writer};
use gguf_cli::{Failure, Progress, Result, Unit, print_data};

pub use args::Args;
pub use guide::Guide;

use args::Job;
use plan::Plan;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|args: Args| run(&args))
}

fn run(args: &Args) -> Result<()> {
    let job = args.job()?;
    let guide = args
        .imatrix_path()
        .map(|p| Guide::load(p, &args.include_weights, &args.exclude_weights))
        .transpose()?;
    let wish = args.wish(&job, guide.is_some())?;
    let file = GgufFile::open(&job.input)?;
    let plan = Plan::new(&file, &wish, guide.as_ref(), args.allow_requantize)?;
    talk(args, &plan);
    if args.strict && plan.n_fallback > 0 {
        let what = format!(
            "{} tensor(s) need a fallback type and `--strict` forbids it",
            plan.n_fallback
        );
        return Err(Failure::Input(what));
    }
    if args.dry_run {
        return print_data(&if args.json {
            report::json(&job, &plan, None)
        } else {
            format!("{}\n{}", report::table(&plan), report::summary(&job, &plan, None))
        });
    }
    let start = Instant::now();
    write(args, &job, &file, &plan, guide.as_ref())?;
    let took = start.elapsed();
    if args.json {
        print_data(&report::json(&job, &plan, Some(took)))?;
    } else if !args.quiet {
        print_data(&report::summary(&job, &plan, Some(took)))?;
    }
    Ok(())
}

/// Warnings and notes, to stderr.
fn talk(args: &Args, plan: &Plan) {
    let progress = Progress::new("", 0, Unit::Tensors, false);
    for line in &plan.warnings {
        progress.note(&format!("warning: {line}"));
    }
    if !args.quiet {
        for line in &plan.notes {
            progress.note(line);
        }
    }
    progress.finish();
}

fn write(args: &Args, job: &Job, file: &GgufFile, plan: &Plan, guide: Option<&Guide>) -> Result<()> {
    let inputs: Vec<&Path> = std::iter::once(job.input.as_path())
        .chain(args.imatrix_path())
        .collect();
    let out = AtomicFile::create(&job.output, args.force, &inputs, Some(plan.layout.total_bytes))?;
    let mut writer = Writer::new(out, &plan.layout)?;
    let pool = gguf_cli::thread_pool(job.threads)?;
    let progress = Progress::new("quantize", plan.source_bytes(), Unit::Bytes, args.quiet);
    pool.install(|| stream::run(file, plan, guide, &mut writer, &|n| progress.add(n)))?;
    writer.finish()?.commit()?;
    progress.finish();
    Ok(())
}
