//! From the command line to the outputs: the checkpoint is opened as a GGUF file, and the quantizer's engine makes the
//! outputs of it.

use std::path::{Path, PathBuf};

use gguf::{GgufFile, Value, listed};
use gguf_cli::{Failure, Result, print_data, print_json, say, warn};
use gguf_models::{arch, check};
use gguf_quantize::{Arrangement, Job, Kind, Results, Run, Target};

use crate::args::Args;
use crate::error::Error;
use crate::open::Checkpoint;
use crate::outtype::Goal;
use crate::plan::{Options, Plan};
use crate::virtual_file::VirtualFile;
use crate::{hub, report};

/// How many findings a message lists.
const N_SHOWN: usize = 3;

/// The type that weights are taken in before they are encoded.
const USUAL_VIA: &str = "bf16";

pub(crate) fn run(args: &Args) -> Result<()> {
    let goal = Goal::of(&args.outtype)?;
    check_options(args, goal)?;
    let mut options = Options {
        outtype: match goal {
            Goal::Plain(name) => name.to_owned(),
            Goal::Encoded(_) => args.via.clone().unwrap_or_else(|| USUAL_VIA.to_owned()),
        },
        model_name: args.model_name.clone(),
        pre: args.pre.clone(),
        metadata: args.metadata.clone(),
        no_mtp: args.no_mtp,
        vocab_only: args.vocab_only,
        repack: args.repack,
        wide: Vec::new(),
    };
    let dir = hub::locate(&args.model, args.download, args.work.talk.quiet)?;
    // Scales of quantized weights, and with `--keep-wide` all weights, are looked at on all threads.
    let pool = args.threads.pool()?;
    let plan = pool.install(|| -> Result<Plan> {
        let plan = Plan::new(&dir, &options)?;
        if !args.keep_wide {
            return Ok(plan);
        }
        options.wide = VirtualFile::too_large(&plan)?;
        Ok(Plan::new(&dir, &options)?)
    })?;
    plan.notes.iter().for_each(|note| warn(note));
    let checkpoint = Checkpoint::new(plan)?;
    // What `--metadata` sets may contradict the tensors.
    require_sound(&checkpoint.file, "the output as planned", args.vocab_only)?;
    let verifies = args.work.verifies() && !args.work.dry_run;
    if verifies {
        // Before the work: a vocabulary that gives other ids makes all of it useless.
        let notes = pool.install(|| checkpoint.plan.verify_vocabulary(&checkpoint.file.metadata))?;
        for note in &notes {
            warn(note);
        }
    }
    // The work has a pool of its own.
    drop(pool);
    let job = job(args, goal, &checkpoint);
    let shown = |run: &Run<'_>, results: &Results<'_>| show(&checkpoint.plan, &job, run, results);
    gguf_quantize::run(&job, &|run, results| {
        // What comes out is looked at before it is called written.
        if results.is_done() && verifies && !args.work.is_part() {
            let files = run.files(0);
            let first = files.first().map(|(first, _)| first);
            first.map_or(Ok(()), |first| verify(first, &checkpoint.file, args.vocab_only))?;
        }
        shown(run, results)
    })
}

/// Options that say nothing for the type that is asked for.
fn check_options(args: &Args, goal: Goal) -> Result<()> {
    let Goal::Plain(name) = goal else {
        let options = [(args.repack, "--repack"), (args.vocab_only, "--vocab-only")];
        let Some((_, option)) = options.into_iter().find(|(given, _)| *given) else {
            return Ok(());
        };
        let what = format!(
            "`{option}` encodes no weights, and `--outtype` asks for a file type: leave one of them out"
        );
        return Err(Failure::Usage(what));
    };
    let via = args.via.as_ref().map(|_| "--via");
    match args.recipe.first.as_deref().or(via) {
        None => Ok(()),
        Some(option) => Err(Failure::Usage(format!(
            "`{option}` is for file types of gguf-quantize, and `--outtype {name}` gives all matrices one type: choose \
             a file type such as `Q4_K_M`, or leave the option out"
        ))),
    }
}

fn job<'a>(args: &'a Args, goal: Goal, checkpoint: &'a Checkpoint) -> Job<'a> {
    let plan = &checkpoint.plan;
    let (kind, file_type, arrangement) = match goal {
        Goal::Plain(_) => (Kind::Plain, plan.file_type, Arrangement::AsSource),
        Goal::Encoded(t) => (Kind::FileType(t), t, Arrangement::ByLayer),
    };
    Job {
        file: &checkpoint.file,
        input: &plan.dir,
        source_name: plan.file_name(plan.file_type.name),
        targets: vec![Target {
            type_name: file_type.name,
            kind,
            output: output_path(args.output.as_deref(), &plan.file_name(file_type.name)),
            is_named: args.output.as_deref().is_some_and(|path| !path.is_dir()),
        }],
        recipe: &args.recipe.options,
        work: &args.work,
        arrangement,
        threads: args.threads.threads,
        title: "convert",
    }
}

/// The file to write: under the default name where a folder is given, or nothing.
fn output_path(output: Option<&Path>, name: &str) -> PathBuf {
    match output {
        Some(path) if path.is_dir() => path.join(name),
        Some(path) => path.to_owned(),
        None => PathBuf::from(name),
    }
}

/// The plan, or what was done.
fn show(plan: &Plan, job: &Job<'_>, run: &Run<'_>, results: &Results<'_>) -> Result<()> {
    if job.work.json {
        return print_json(&report::json(plan, job, run, results));
    }
    if !results.is_done() {
        return print_data(&report::text(plan, job, run, results));
    }
    if !job.work.talk.quiet {
        results.losses().iter().flatten().for_each(|line| say(line));
        say(&report::summary(job, run, results));
    }
    Ok(())
}

/// Refuses a file that its architecture does not fit, or whose keys make no sense.
fn require_sound(file: &GgufFile, what: &str, vocab_only: bool) -> Result<()> {
    let mut findings = gguf::validate::layout(file);
    if !vocab_only {
        let (arch, hparams) = arch::describe(&file.metadata).map_err(Error::from)?;
        findings.extend(check::check(file, arch, &hparams));
    }
    let severe = findings.into_iter().filter(|f| f.severe);
    require_none(
        what,
        &severe
            .map(|f| format!("`{}`: {}", f.object, f.what))
            .collect::<Vec<_>>(),
    )
}

fn require_none(what: &str, findings: &[String]) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    Err(Error::mismatch(what, "no findings", listed(findings, N_SHOWN, "; ")).into())
}

/// Opens the output and compares it with its architecture, and its vocabulary with the one that was proved.
fn verify(path: &Path, proved: &GgufFile, vocab_only: bool) -> Result<()> {
    let file = GgufFile::open(path)?;
    let what = format!("`{}` read back", path.display());
    require_sound(&file, &what, vocab_only)?;
    // Single values may be set by `--override-kv`.
    let is_list =
        |(key, value): &(&str, &Value)| key.starts_with("tokenizer.") && matches!(value, Value::Array(_));
    let differs = |(key, value): &(&str, &Value)| file.metadata.get(key) != Some(*value);
    let wrong = proved.metadata.iter().filter(is_list).filter(differs);
    let lines: Vec<_> = wrong
        .map(|(key, _)| format!("key `{key}`: another value than was written"))
        .collect();
    require_none(&what, &lines)
}
