//! A run from its arguments to the outputs' names: plan all, refuse all that can be refused, then work.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gguf::atomic::AtomicFile;
use gguf::digest::Digest;
use gguf::resumable::{Outputs, Request as OutputRequest, Start};
use gguf::{GgufFile, Metadata};
use gguf_cli::{Failure, Progress, Result, Unit, count, human_bytes, print_data, print_json};
use rayon::ThreadPool;

use crate::args::Args;
use crate::engine::{self, Importances, Work};
use crate::guide::Guide;
use crate::job::{Job, Target};
use crate::plan::{Plan, Step};
use crate::report::{self, Needs};
use crate::request::Request;
use crate::shards::{Division, Shards};
use crate::source::{self, Pace};
use crate::verify::{self, Loss};

/// One target with all that is decided for it.
struct Product<'a> {
    target: &'a Target,
    plan: Plan,
    shards: Shards,
}

/// What a run has in common for all its targets.
struct Run<'a> {
    args: &'a Args,
    job: &'a Job,
    file: &'a GgufFile,
    guide: Option<&'a Guide>,
    products: Vec<Product<'a>>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let job = args.job()?;
    let request = args.request(&job)?;
    let guide = args
        .imatrix_path()
        .map(|p| Guide::load(p, &args.include_weights, &args.exclude_weights))
        .transpose()?;
    let file = GgufFile::open(&job.input)?;
    file.require_sound()?;
    let plan = |target| Product::plan(args, target, &request, guide.as_ref(), &file);
    let run = Run {
        args,
        job: &job,
        file: &file,
        guide: guide.as_ref(),
        products: job.targets.iter().map(plan).collect::<Result<_>>()?,
    };
    run.run()
}

impl<'a> Product<'a> {
    fn plan(
        args: &Args,
        target: &'a Target,
        request: &Request,
        guide: Option<&Guide>,
        file: &GgufFile,
    ) -> Result<Self> {
        let plan = Plan::new(file, request, target, guide)?;
        let specs = plan.specs();
        let costs: Vec<u64> = plan.steps.iter().map(cost).collect();
        let division = division(args, file, &plan.steps);
        let shards = Shards::new(
            &plan.metadata,
            specs,
            &costs,
            &division,
            &target.output,
            args.part,
        )?;
        Ok(Self { target, plan, shards })
    }

    fn engine_target(&self, first_output: usize) -> engine::Target<'_> {
        let place = |p: Option<(usize, u64)>| p.map(|(file, at)| (first_output + file, at));
        engine::Target {
            steps: &self.plan.steps,
            places: self.shards.places().into_iter().map(place).collect(),
        }
    }
}

fn division(args: &Args, file: &GgufFile, steps: &[Step]) -> Division {
    match (args.split_max_size, args.keep_split, args.part) {
        (Some(max), ..) => Division::MaxBytes(max),
        (None, true, _) => {
            let start = |part| steps.partition_point(|s| s.source.part < part);
            Division::Starts((0..file.parts().len()).map(start).collect())
        }
        (None, false, Some(part)) => Division::Even(part.of),
        (None, false, None) => Division::Whole,
    }
}

/// Time to read or write a byte, in tenths of a nanosecond.
const BYTE_COST: u64 = 2;

/// The work for a tensor, in tenths of a nanosecond.
fn cost(step: &Step) -> u64 {
    let bytes = step
        .source
        .n_bytes
        .saturating_add(step.n_bytes())
        .saturating_mul(BYTE_COST);
    if step.is_copy() {
        return bytes;
    }
    let values = step.source.shape.n_elems();
    values
        .saturating_mul(u64::from(step.to.encode_cost))
        .saturating_add(bytes)
}

impl Run<'_> {
    fn run(&self) -> Result<()> {
        let outputs = self.outputs();
        let inputs = self.inputs();
        let sound = self.products.iter().try_for_each(|p| p.plan.check());
        let marks = source::marks(self.file)?;
        let least = self.least_memory();
        // Where a tensor's rows make no sense the plan has failed already.
        let least_or_none = least.as_ref().map_or(0, |n| *n);
        let needs = Needs::of(&outputs, self.args.max_memory(), least_or_none);
        let request = OutputRequest {
            outputs: &outputs,
            inputs: &inputs,
            force: self.args.output.force,
            resume: self.args.resume,
            plan: self.digest(&marks),
        };
        if !Outputs::is_left(&request) && self.is_complete(&outputs)? {
            gguf_cli::say(
                "complete already: the outputs are there with the heads that this command line gives them",
            );
            return if self.args.json {
                self.print(needs, &[], None)
            } else {
                Ok(())
            };
        }
        let pool = least.and_then(|least| self.pool(least));
        let checked = if outputs.is_empty() {
            Ok(())
        } else {
            Outputs::check(&request).map(drop).map_err(Failure::from)
        };
        let checked = checked.and_then(|()| self.check_report(&request));
        if self.args.dry_run {
            self.talk(needs);
            self.print(needs, &[], None)?;
            return sound.and(pool.map(drop)).and(checked);
        }
        sound?;
        let pool = pool.and_then(|pool| checked.map(|()| pool))?;
        self.talk(needs);
        if outputs.is_empty() {
            gguf_cli::warn("this part has no shard to write: there are more parts than shards");
            return Ok(());
        }
        let begin = Instant::now();
        let (files, start) = Outputs::start(&request)?;
        let losses = match start {
            Start::Complete if self.args.report.is_some() => {
                let what = "--report: every byte is there from an earlier run: repeat the command without it";
                return Err(Failure::Usage(what.to_owned()));
            }
            Start::Complete => Vec::new(),
            Start::New => self.work(&files, 0, &pool)?,
            Start::At(done) => self.work(&files, done, &pool)?,
        };
        self.check_source(&marks)?;
        files.publish()?;
        let took = begin.elapsed();
        self.report(needs, &inputs, &losses)?;
        self.print(needs, &losses, Some(took))
    }

    /// Whether all outputs are there under their names, no older than what they are made of and with the heads that
    /// this run would give them: a job that is started again after its end has nothing to do. The source's digest is
    /// not compared, since it takes a read of the whole source.
    fn is_complete(&self, outputs: &[(PathBuf, u64)]) -> Result<bool> {
        let again =
            self.args.resume && !self.args.output.force && !self.args.dry_run && self.args.report.is_none();
        if !again || outputs.is_empty() {
            return Ok(false);
        }
        let changed = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
        let newest = self.inputs().into_iter().filter_map(changed).max();
        let is_there = |(path, n): &(PathBuf, u64)| {
            path.metadata().is_ok_and(|m| m.is_file() && m.len() == *n) && changed(path) >= newest
        };
        if !outputs.iter().all(is_there) {
            return Ok(false);
        }
        let mut paths = outputs.iter();
        for product in &self.products {
            let ones = vec![Digest([0xff; 32]); self.file.parts().len()];
            let other = product
                .shards
                .with_metadata(&with_digests(&product.plan.metadata, &ones))?;
            for ((zeros, ones), (path, _)) in product.shards.heads().zip(other.heads()).zip(&mut paths) {
                let mut found = vec![0; zeros.len()];
                gguf::source::open(path)?.read_at(0, &mut found)?;
                let mut bytes = zeros.iter().zip(ones).zip(&found);
                if !bytes.all(|((zero, one), found)| zero == found || zero != one) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Whether the source is what it was when the run began.
    fn check_source(&self, marks: &[u8]) -> Result<()> {
        if source::marks(self.file)? == marks {
            return Ok(());
        }
        Err(Failure::Input(format!(
            "`{}`: it changed while it was read: run again when nothing writes to it",
            self.file.path().display()
        )))
    }

    /// Everything that is read.
    fn inputs(&self) -> Vec<&Path> {
        let shards = self.file.parts().iter().map(gguf::Part::path);
        std::iter::once(self.job.input.as_path())
            .chain(shards)
            .chain(self.args.imatrix_path())
            .chain(self.args.tensor_type_file.iter().map(PathBuf::as_path))
            .collect()
    }

    /// Digest of all that decides the outputs' bytes.
    fn digest(&self, marks: &[u8]) -> Digest {
        let mut text = marks.to_vec();
        for product in &self.products {
            for path in product.shards.paths() {
                text.extend(path.as_os_str().as_encoded_bytes());
                text.push(0);
            }
            // The heads have the recipe and the importance matrix's digest.
            product.shards.all_heads().for_each(|head| text.extend(head));
        }
        Digest::of(&text)
    }

    fn targets(&self) -> Vec<engine::Target<'_>> {
        let mut first = 0;
        let mut out = Vec::with_capacity(self.products.len());
        for product in &self.products {
            out.push(product.engine_target(first));
            first += product.shards.outputs().len();
        }
        out
    }

    /// As many threads as were asked for, or as memory allows where one needs `least` bytes.
    fn pool(&self, least: u64) -> Result<ThreadPool> {
        let max = self.args.max_memory();
        if least > max {
            return Err(Failure::Usage(format!(
                "--max-memory: the largest rows need {least} bytes ({}) for one thread, found {max}",
                human_bytes(least)
            )));
        }
        let pool = gguf_cli::thread_pool(self.job.threads)?;
        let affordable = usize::try_from(max / least).unwrap_or(usize::MAX);
        if affordable >= pool.current_num_threads() {
            return Ok(pool);
        }
        gguf_cli::warn(&format!(
            "--max-memory: the largest rows leave memory for {} only",
            count(affordable as u64, "thread")
        ));
        gguf_cli::thread_pool(affordable)
    }

    /// Bytes of `--max-memory` that one thread needs: for the largest rows, and a third as much for all else.
    fn least_memory(&self) -> Result<u64> {
        Ok(engine::least_memory(&self.targets())?
            .saturating_mul(4)
            .div_ceil(3)
            .max(1))
    }

    /// Writes all bytes of the outputs but the first `done` rows. Returns what sampled rows lost, for each target and
    /// each of its tensors.
    fn work(&self, outputs: &Outputs, done: u64, pool: &ThreadPool) -> Result<Vec<Vec<Option<Loss>>>> {
        let targets = self.targets();
        let importances: &Importances<'_> = &|step, matrix| step.weights(self.guide, matrix);
        let total = engine::source_bytes(&targets, 0);
        let left = engine::source_bytes(&targets, done);
        if done > 0 {
            gguf_cli::say(&format!(
                "resuming: {} of {} are done",
                human_bytes(total - left),
                human_bytes(total)
            ));
        }
        let progress = Progress::new("quantize", left, Unit::Bytes, self.args.talk.quiet);
        let pace = Pace::default();
        let work = Work {
            file: self.file,
            targets: &targets,
            outputs,
            importances,
            max_memory: self.args.max_memory() / 4 * 3,
            first_checkpoint: engine::FIRST_CHECKPOINT,
            progress: &|n| {
                pace.add(n);
                progress.add(n);
            },
        };
        // Parts read little of the source, so there is nothing to keep step with.
        pace.add(if self.args.part.is_some() {
            u64::MAX / 2
        } else {
            total - left
        });
        let digests = std::thread::scope(|scope| {
            let hash = || source::digests(self.file, &pace);
            let hasher = self.hashes().then(|| scope.spawn(hash));
            let end = pace.stop_at_end();
            let worked = work.run(done, pool);
            if worked.is_ok() {
                end.release();
                if hasher.as_ref().is_some_and(|h| !h.is_finished()) {
                    progress.note(
                        "computing the rest of the source's SHA-256 (`--no-source-hash` leaves it out)",
                    );
                }
            } else {
                drop(end);
            }
            let digests = hasher.map(|h| h.join().expect("the digest does not panic"));
            worked.and(digests.transpose().map_err(Failure::from))
        })?;
        self.write_heads(outputs, digests.as_deref())?;
        progress.finish();
        if self.args.no_verify {
            return Ok(Vec::new());
        }
        pool.install(|| verify::verify(self.file, &targets, outputs, importances))
    }

    /// Whether the source's digest goes into a file that this run writes.
    fn hashes(&self) -> bool {
        !self.args.no_source_hash && self.products.iter().any(|p| p.shards.has_first())
    }

    /// The heads come last: until then no part file can be taken for a model.
    fn write_heads(&self, outputs: &Outputs, digests: Option<&[Digest]>) -> Result<()> {
        let mut no = 0;
        for product in &self.products {
            let known = digests.map(|digests| with_digests(&product.plan.metadata, digests));
            let known = known.map(|m| product.shards.with_metadata(&m)).transpose()?;
            for head in known.as_ref().unwrap_or(&product.shards).heads() {
                outputs.write_at(no, 0, head)?;
                outputs.close(no)?;
                no += 1;
            }
        }
        Ok(())
    }

    fn talk(&self, needs: Needs) {
        needs.warning().iter().for_each(|line| gguf_cli::warn(line));
        for product in &self.products {
            product.plan.warnings.iter().for_each(|line| gguf_cli::warn(line));
            if !self.args.talk.quiet {
                product.plan.notes.iter().for_each(|line| gguf_cli::say(line));
            }
        }
    }

    /// Whether the file of `--report` can be written, and is none of those that this run makes.
    fn check_report(&self, request: &OutputRequest<'_>) -> Result<()> {
        let Some(report) = &self.args.report else {
            return Ok(());
        };
        if Outputs::uses(request, report) {
            let what = format!(
                "--report `{}`: it is an output: choose another name",
                report.display()
            );
            return Err(Failure::Usage(what));
        }
        Ok(AtomicFile::check_all(
            &[(report.clone(), 0)],
            self.args.output.force,
            request.inputs,
        )?)
    }

    /// Writes the file of `--report`.
    fn report(&self, needs: Needs, inputs: &[&Path], losses: &[Vec<Option<Loss>>]) -> Result<()> {
        let Some(path) = &self.args.report else {
            return Ok(());
        };
        let views = self.views(needs, losses, None);
        report::write_losses(path, self.args.output.force, inputs, self.job, &views)
    }

    fn views<'b>(
        &'b self,
        needs: Needs,
        losses: &'b [Vec<Option<Loss>>],
        took: Option<Duration>,
    ) -> Vec<report::View<'b>> {
        let view = |(i, p): (usize, &'b Product<'_>)| report::View {
            target: p.target,
            plan: &p.plan,
            shards: &p.shards,
            losses: losses.get(i).map_or(&[], Vec::as_slice),
            took,
            needs,
        };
        self.products.iter().enumerate().map(view).collect()
    }

    fn outputs(&self) -> Vec<(PathBuf, u64)> {
        self.products.iter().flat_map(|p| p.shards.outputs()).collect()
    }

    /// The plan, or with `took` what was done.
    fn print(&self, needs: Needs, losses: &[Vec<Option<Loss>>], took: Option<Duration>) -> Result<()> {
        let views = self.views(needs, losses, took);
        if self.args.json {
            return match (views.as_slice(), self.args.has_folder()) {
                ([one], false) => print_json(&report::of(self.job, one)),
                (all, _) => print_json(&all.iter().map(|v| report::of(self.job, v)).collect::<Vec<_>>()),
            };
        }
        for view in &views {
            match took {
                None => print_data(&report::plan(view))?,
                Some(_) if self.args.talk.quiet => {}
                Some(_) => {
                    for line in report::losses(view) {
                        gguf_cli::say(&line);
                    }
                    gguf_cli::say(&report::summary(view));
                }
            }
        }
        Ok(())
    }
}

fn with_digests(metadata: &Metadata, digests: &[Digest]) -> Metadata {
    let replace = |(key, value): (&str, &gguf::Value)| match key {
        source::SHA256 => (key.to_owned(), source::value(digests)),
        _ => (key.to_owned(), value.clone()),
    };
    metadata.iter().map(replace).collect()
}
