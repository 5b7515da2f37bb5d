//! The program: a job from its command line, and how the plan or the result is shown.

use gguf::GgufFile;
use gguf_cli::{Result, file_name, print_data, print_json, say};

use crate::args::Args;
use crate::job::{Arrangement, Job};
use crate::run::{self, Results};

pub(crate) fn run(args: &Args) -> Result<()> {
    let positional = args.positional()?;
    let file = GgufFile::open(&positional.input)?;
    let job = Job {
        source_name: file_name(file.path()).into_owned(),
        file: &file,
        input: &positional.input,
        targets: positional.targets,
        recipe: &args.recipe,
        work: &args.work,
        arrangement: if args.keep_split {
            Arrangement::SourceShards
        } else {
            Arrangement::ByLayer
        },
        threads: positional.threads,
        title: "quantize",
    };
    run::run(&job, &|_, results| show(args, &job, results))
}

/// The plan, or what was done.
fn show(args: &Args, job: &Job<'_>, results: &Results<'_>) -> Result<()> {
    if job.work.json {
        return match (results.json(job).as_slice(), args.has_folder()) {
            ([one], false) => print_json(one),
            (all, _) => print_json(&all),
        };
    }
    if !results.is_done() {
        return results.texts().iter().try_for_each(|text| print_data(text));
    }
    if !job.work.talk.quiet {
        for (losses, summary) in results.losses().iter().zip(results.texts()) {
            for line in losses {
                say(line);
            }
            say(&summary);
        }
    }
    Ok(())
}
