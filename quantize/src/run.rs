//! A run from a job to the outputs' names: plan all, refuse all that can be refused, then work.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gguf::atomic::AtomicFile;
use gguf::digest::Digest;
use gguf::resumable::{Outputs, Request as OutputRequest, Start};
use gguf::{Metadata, TensorInfo};
use gguf_cli::{
    AddressSpace, Failure, Progress, Result, THREAD_BYTES, Unit, count, human_bytes, shortened, spawn_scoped,
};
use rayon::ThreadPool;

use crate::engine::{self, Importances, Work};
use crate::guide::Guide;
use crate::job::{Arrangement, Job, Target};
use crate::plan::{Plan, Step};
use crate::report::{self, Needs};
use crate::request::Request;
use crate::shards::{Division, Shards};
use crate::source::{self, Pace};
use crate::verify::{self, Loss};

/// Threads beside the pool: one for the source's digest, one that has the disk write.
const HELPERS: u64 = 2;
/// Address space for what is neither rows in work nor threads: heads, buffers of the digest, the look at samples.
const BESIDE: u64 = 4 << 20;

/// Warnings, and notes, of a target that are told: every tensor, and every rule, may have some.
const MOST_TOLD: usize = 500;

/// One target with all that is decided for it.
struct Product<'a> {
    target: &'a Target,
    plan: Plan,
    shards: Shards,
}

/// All that is decided of a job.
pub struct Run<'a> {
    job: &'a Job<'a>,
    guide: Option<Guide>,
    products: Vec<Product<'a>>,
}

/// What there is to show of a run: its plan, or its results.
pub struct Results<'a> {
    views: Vec<report::View<'a>>,
}

impl Results<'_> {
    /// Whether the outputs are there; if not, this is the plan.
    pub fn is_done(&self) -> bool {
        self.views.iter().any(|v| v.took.is_some())
    }

    /// The plan for people, or a line for what was done, of each target.
    pub fn texts(&self) -> Vec<String> {
        let text = |v| {
            if self.is_done() {
                report::summary(v)
            } else {
                report::plan(v)
            }
        };
        self.views.iter().map(text).collect()
    }

    /// What sampled rows lost, a line for each part of the model, of each target.
    pub fn losses(&self) -> Vec<Vec<String>> {
        self.views.iter().map(report::losses).collect()
    }

    /// The plan or the result of each target for programs.
    pub fn json(&self, job: &Job<'_>) -> Vec<impl serde::Serialize> {
        self.views.iter().map(|v| report::of(job, v)).collect()
    }
}

/// How a program shows a plan, or what was done.
pub type Show<'a> = dyn Fn(&Run<'_>, &Results<'_>) -> Result<()> + 'a;

/// Makes a plan of a job and does the work, unless the plan alone is asked for. `show` is called once, with one or the
/// other.
///
/// # Errors
/// Everything that makes the plan impossible; a failed read or write; weights that are not sound.
pub fn run(job: &Job<'_>, show: &Show<'_>) -> Result<()> {
    job.file.require_sound()?;
    Run::new(job)?.run(show)
}

impl<'a> Product<'a> {
    fn plan(job: &Job<'_>, target: &'a Target, request: &Request, guide: Option<&Guide>) -> Result<Self> {
        let plan = Plan::new(job, request, target, guide)?;
        let specs = plan.specs();
        let costs: Vec<u64> = plan.steps.iter().map(cost).collect();
        let division = division(job, &plan.steps);
        let shards = Shards::new(
            &plan.metadata,
            specs,
            &costs,
            &division,
            &target.output,
            job.work.part,
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

fn division(job: &Job<'_>, steps: &[Step]) -> Division {
    let keeps_shards = job.arrangement == Arrangement::SourceShards;
    match (job.work.limits(), keeps_shards, job.work.part) {
        (Some(limits), ..) => Division::Within(limits),
        (None, true, _) => {
            let start = |part| steps.partition_point(|s| s.source.part < part);
            Division::Starts((0..job.file.parts().len()).map(start).collect())
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

impl<'a> Run<'a> {
    fn new(job: &'a Job<'a>) -> Result<Self> {
        let request = Request::new(job)?;
        let (include, exclude) = (&job.recipe.include_weights, &job.recipe.exclude_weights);
        let guide = job.recipe.imatrix_path();
        let mut guide = guide.map(|p| Guide::load(p, include, exclude)).transpose()?;
        if let Some(n) = job.recipe.prior {
            guide = guide.map(|g| g.with_prior(n)).transpose()?;
        }
        if let Some(guide) = &mut guide {
            let mut metadata = job.file.metadata.clone();
            for (key, value) in &request.pairs {
                metadata.set(key, value.clone());
            }
            guide.compare(job.file, &metadata)?;
        }
        let product = |target| Product::plan(job, target, &request, guide.as_ref());
        Ok(Self {
            products: job.targets.iter().map(product).collect::<Result<_>>()?,
            guide,
            job,
        })
    }

    /// The metadata of a target, with zeros for the source's digest until it is written.
    pub fn metadata(&self, target: usize) -> &Metadata {
        &self.products[target].plan.metadata
    }

    /// The tensors of a target in their order, with offsets in their file's data section.
    pub fn tensors(&self, target: usize) -> impl Iterator<Item = &TensorInfo> {
        self.products[target].shards.tensors()
    }

    /// Names and bytes of the files that this run writes for a target.
    pub fn files(&self, target: usize) -> Vec<(PathBuf, u64)> {
        self.products[target].shards.outputs()
    }

    fn run(&self, show: &Show<'_>) -> Result<()> {
        let outputs = self.outputs();
        let mut inputs = self.inputs();
        // A checkpoint's other files are part of the model too. GGUF files beside them are not.
        inputs.extend(gguf::atomic::of_checkpoint(self.job.input));
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let sound = self.products.iter().try_for_each(|p| p.plan.check());
        let marks = source::marks(self.job.file)?;
        let least = self.least_memory();
        // Where a tensor's rows make no sense the plan has failed already.
        let least_or_none = least.as_ref().map_or(0, |n| *n);
        let needs = Needs::of(&outputs, self.job.work.max_memory(), least_or_none);
        let request = OutputRequest {
            outputs: &outputs,
            derived: !self.is_named(),
            inputs: &inputs,
            force: self.job.work.output.force,
            resume: self.job.work.resume,
            plan: self.digest(&marks),
        };
        if !Outputs::is_left(&request) && self.is_complete(&outputs)? {
            gguf_cli::say(
                "complete already: the outputs are there with the heads that this command line gives them",
            );
            return if self.job.work.json {
                show(self, &self.results(needs, &[], None))
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
        if self.job.work.dry_run {
            self.talk(needs);
            show(self, &self.results(needs, &[], None))?;
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
            Start::Complete if self.job.recipe.report.is_some() => {
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
        show(self, &self.results(needs, &losses, Some(took)))
    }

    /// Whether all outputs are there under their names, no older than what they are made of and with the heads that
    /// this run would give them: a job that is started again after its end has nothing to do. The source's digest is
    /// not compared, since it takes a read of the whole source.
    fn is_complete(&self, outputs: &[(PathBuf, u64)]) -> Result<bool> {
        let again = self.job.work.resume
            && !self.job.work.output.force
            && !self.job.work.dry_run
            && self.job.recipe.report.is_none();
        if !again || outputs.is_empty() {
            return Ok(false);
        }
        let changed = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
        let newest = self.inputs().iter().filter_map(|p| changed(p)).max();
        let is_there = |(path, n): &(PathBuf, u64)| {
            path.metadata().is_ok_and(|m| m.is_file() && m.len() == *n) && changed(path) >= newest
        };
        if !outputs.iter().all(is_there) {
            return Ok(false);
        }
        let mut paths = outputs.iter();
        for product in &self.products {
            let ones = vec![Digest([0xff; 32]); self.job.file.parts().len()];
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
        if source::marks(self.job.file)? == marks {
            return Ok(());
        }
        Err(Failure::Input(format!(
            "`{}`: it changed while it was read: run again when nothing writes to it",
            self.job.file.path().display()
        )))
    }

    /// Whether the outputs have the very names that the user gave.
    fn is_named(&self) -> bool {
        let mut products = self.products.iter().zip(&self.job.targets);
        products.all(|(product, target)| target.is_named && product.shards.is_whole())
    }

    /// Every file that is read.
    fn inputs(&self) -> Vec<PathBuf> {
        let parts = self.job.file.parts().iter();
        let options = self.job.recipe.tensor_type_file.iter();
        let named = Some(self.job.input).filter(|path| !path.is_dir());
        named
            .map(Path::to_owned)
            .into_iter()
            .chain(parts.flat_map(|part| part.source().inputs()))
            .chain(self.job.recipe.imatrix_path().map(Path::to_owned))
            .chain(options.cloned())
            .collect()
    }

    /// Digest of all that decides the outputs' bytes.
    fn digest(&self, marks: &[u8]) -> Digest {
        let mut text = marks.to_vec();
        text.extend(env!("CARGO_PKG_VERSION").bytes());
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

    /// As many threads as were asked for, or as memory allows where one needs `least` bytes, and the bytes for the rows
    /// that they have in work.
    fn pool(&self, least: u64) -> Result<(ThreadPool, u64)> {
        let max = self.job.work.max_memory();
        if least > max {
            return Err(Failure::Usage(format!(
                "--max-memory: the largest rows need {least} bytes ({}) for one thread, found {max}",
                human_bytes(least)
            )));
        }
        let space = AddressSpace::now();
        // A limit of the address space holds for what threads take besides, too.
        let budget = |n: usize| {
            let beside = (n as u64 + HELPERS) * THREAD_BYTES + BESIDE;
            space.map_or(max, |space| max.min(space.left().saturating_sub(beside)))
        };
        let asked = gguf_cli::n_threads(self.job.threads)?;
        let Some(n) = (1..=asked).rev().find(|&n| budget(n) / n as u64 >= least) else {
            let space = space.expect("without a limit one thread has enough");
            let needed = space.used + least + (1 + HELPERS) * THREAD_BYTES + BESIDE;
            return Err(Failure::Usage(format!(
                "address space (`ulimit -v`): one thread for the largest rows needs a limit of {} KiB, found {} KiB; \
                 raise it",
                needed.div_ceil(1024),
                space.limit / 1024
            )));
        };
        if n < asked {
            gguf_cli::warn(&format!(
                "--max-memory: the largest rows leave memory for {} only",
                count(n as u64, "thread")
            ));
        }
        let budget = budget(n);
        Ok((gguf_cli::thread_pool(n)?, budget))
    }

    /// Bytes of `--max-memory` that one thread needs: for the largest rows, and a third as much for all else.
    fn least_memory(&self) -> Result<u64> {
        Ok(engine::least_memory(self.job.file, &self.targets())?
            .saturating_mul(4)
            .div_ceil(3)
            .max(1))
    }

    /// Writes all bytes of the outputs but the first `done` rows. Returns what sampled rows lost, for each target and
    /// each of its tensors.
    fn work(
        &self,
        outputs: &Outputs,
        done: u64,
        (pool, budget): &(ThreadPool, u64),
    ) -> Result<Vec<Vec<Option<Loss>>>> {
        let targets = self.targets();
        let importances: &Importances<'_> = &|step, matrix| step.weights(self.guide.as_ref(), matrix);
        let total = engine::source_bytes(&targets, 0);
        let left = engine::source_bytes(&targets, done);
        if done > 0 {
            gguf_cli::say(&format!(
                "resuming: {} of {} are done",
                human_bytes(total - left),
                human_bytes(total)
            ));
        }
        let progress = Progress::new(self.job.title, left, Unit::Bytes, self.job.work.talk.quiet);
        let pace = Pace::default();
        let work = Work {
            file: self.job.file,
            targets: &targets,
            outputs,
            importances,
            max_memory: budget / 4 * 3,
            first_checkpoint: engine::FIRST_CHECKPOINT,
            progress: &|n| {
                pace.add(n);
                progress.add(n);
            },
        };
        // Parts read little of the source, so there is nothing to keep step with.
        pace.add(if self.job.work.part.is_some() {
            u64::MAX / 2
        } else {
            total - left
        });
        let digests = std::thread::scope(|scope| {
            let hash = || source::digests(self.job.file, &pace);
            let hasher = self.hashes().then(|| spawn_scoped(scope, "digest", hash));
            let hasher = hasher.transpose()?;
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
        if self.job.work.no_verify {
            return Ok(Vec::new());
        }
        pool.install(|| verify::verify(self.job.file, &targets, outputs, importances))
    }

    /// Whether the source's digest goes into a file that this run writes.
    fn hashes(&self) -> bool {
        let takes = |p: &Product<'_>| p.shards.has_first() && p.plan.metadata.contains(source::SHA256);
        self.products.iter().any(takes)
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
            let warnings = shortened(&product.plan.warnings, MOST_TOLD, " warnings (`--json` has all)");
            for line in &warnings {
                gguf_cli::warn(line);
            }
            if !self.job.work.talk.quiet {
                let notes = shortened(&product.plan.notes, MOST_TOLD, " notes (`--json` has all)");
                for line in &notes {
                    gguf_cli::say(line);
                }
            }
        }
    }

    /// Whether the file of `--report` can be written, and is none of those that this run makes.
    fn check_report(&self, request: &OutputRequest<'_>) -> Result<()> {
        let Some(report) = &self.job.recipe.report else {
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
            self.job.work.output.force,
            request.inputs,
        )?)
    }

    /// Writes the file of `--report`.
    fn report(&self, needs: Needs, inputs: &[&Path], losses: &[Vec<Option<Loss>>]) -> Result<()> {
        let Some(path) = &self.job.recipe.report else {
            return Ok(());
        };
        let views = self.results(needs, losses, None).views;
        report::write_losses(path, self.job.work.output.force, inputs, self.job, &views)
    }

    fn results<'b>(
        &'b self,
        needs: Needs,
        losses: &'b [Vec<Option<Loss>>],
        took: Option<Duration>,
    ) -> Results<'b> {
        let view = |(i, p): (usize, &'b Product<'_>)| report::View {
            target: p.target,
            plan: &p.plan,
            shards: &p.shards,
            losses: losses.get(i).map_or(&[], Vec::as_slice),
            took,
            needs,
        };
        Results {
            views: self.products.iter().enumerate().map(view).collect(),
        }
    }

    fn outputs(&self) -> Vec<(PathBuf, u64)> {
        self.products.iter().flat_map(|p| p.shards.outputs()).collect()
    }
}

fn with_digests(metadata: &Metadata, digests: &[Digest]) -> Metadata {
    let replace = |(key, value): (&str, &gguf::Value)| match key {
        source::SHA256 => (key.to_owned(), source::value(digests)),
        _ => (key.to_owned(), value.clone()),
    };
    metadata.iter().map(replace).collect()
}
