//! The run: models, sessions, threads, tests.

use std::path::Path;
use std::time::Instant;

use gguf_cli::{Failure, Result, file_name, say, warn};

use super::args::Args;
use super::bandwidth::{self, Bandwidth};
use super::cold::{self, Start};
use super::in_turn::{self, Turn};
use super::load::{self, Interval, Watch};
use super::plan::{Config, Plan, Test};
use super::plot::Plot;
use super::record::{Measured, ModelFacts, Results};
use super::report::Output;
use super::timing::{Runner, warm_up};
use super::traffic::{self, Traffic};
use crate::options::{PlacementArgs, PoolArgs};
use crate::pool::Pool;
use crate::{Model, Session};

/// Runs the program.
pub(super) fn run(args: &Args) -> Result<()> {
    let plan = Plan::of(args)?;
    let inputs: Vec<&Path> = plan.models.iter().map(std::path::PathBuf::as_path).collect();
    let plot = args.plot.as_deref();
    let plot = plot
        .map(|path| Plot::create(path, args.overwrite.force, &inputs))
        .transpose()?;
    let threads = plan.threads.iter();
    let pools = threads
        .map(|&n| pool(n, &args.placement))
        .collect::<Result<Vec<_>>>()?;
    if plan.models.len() > 1 {
        // Better now than after the others were measured.
        for path in &plan.models {
            pools[0].enter(|| open(args, path))?;
        }
    }
    let bench = Bench {
        args,
        plan: &plan,
        pools: &pools,
        watch: Watch::start(),
        results: Results::new(plan.sweep, args.placement.placement()),
        output: Output::new(args.format()),
    };
    let results = bench.run()?;
    if let Some(plot) = plot {
        plot.draw(&results)?;
    }
    Ok(())
}

/// Threads for all work.
fn pool(n: usize, placement: &PlacementArgs) -> Result<Pool> {
    let args = PoolArgs {
        threads: n,
        threads_batch: 0,
        placement: *placement,
    };
    args.pool()
}

/// How every model is opened: options of loading are applied here.
fn open(args: &Args, path: &Path) -> Result<Model> {
    Ok(args.load.open(path, args.talk.quiet)?)
}

struct Bench<'a> {
    args: &'a Args,
    plan: &'a Plan,
    /// One for each number of threads.
    pools: &'a [Pool],
    watch: Watch,
    results: Results,
    output: Output,
}

impl Bench<'_> {
    fn run(mut self) -> Result<Results> {
        let plan = self.plan;
        for path in &plan.models {
            self.model(path)?;
        }
        let n_threads = self.pools.iter().map(Pool::n_batch).max();
        // In turn the others are the ones that are compared.
        let whole = self.watch.stop().filter(|_| !plan.in_turn);
        self.results.finish(whole, n_threads.unwrap_or(1));
        self.output.end(&self.results)?;
        Ok(self.results)
    }

    fn model(&mut self, path: &Path) -> Result<()> {
        let plan = self.plan;
        if self.args.cold {
            cold::drop_pages(path)?;
        }
        let disk = load::disk_bytes();
        let started = Instant::now();
        let model = self.pools[0].enter(|| open(self.args, path))?;
        let mut start = Start {
            cold: self.args.cold,
            open: started.elapsed().as_secs_f64(),
            session: 0.0,
            prompt: None,
            token: None,
            disk: None,
            needed: traffic::weight_bytes(&model),
        };
        let trained = model.spec().n_ctx_train;
        if plan.n_ctx > trained {
            warn(&format!(
                "the tests need a context of {} tokens, longer than the {trained} that `{}` was trained on",
                plan.n_ctx,
                file_name(path)
            ));
        }
        for (i, &batch) in plan.batches.iter().enumerate() {
            for (j, &cache) in plan.caches.iter().enumerate() {
                let settings = plan.settings(batch, cache);
                let started = Instant::now();
                let mut session = self.pools[0].enter(|| Session::new(&model, settings))?;
                if i + j == 0 {
                    start.session = started.elapsed().as_secs_f64();
                    if plan.warmup || start.cold {
                        self.first(&mut session, batch.0, &mut start)?;
                    }
                    start.disk = disk.and_then(|before| load::disk_bytes()?.checked_sub(before));
                    self.results
                        .models
                        .push(ModelFacts::of(path, &model, plan.compute, start));
                }
                self.session(&mut session, batch)?;
            }
        }
        Ok(())
    }

    /// The first prompt and the first token behind it.
    fn first(&self, session: &mut Session<'_>, n_batch: usize, start: &mut Start) -> Result<()> {
        let prompts = self.plan.tests.iter().map(|t| t.n_prompt);
        let n_prompt = prompts.clone().find(|&p| p > 0).unwrap_or(0);
        let n_prompt = n_prompt.min(session.settings().n_ctx - 1);
        let mut runner = Runner::new(session, n_batch);
        let mut time = |n_prompt, n_gen, n_depth| {
            let test = Test {
                n_prompt,
                n_gen,
                n_depth,
            };
            self.pools[0].enter(|| runner.once(&test, 0))
        };
        if n_prompt > 0 {
            start.prompt = Some((n_prompt, time(n_prompt, 0, 0)?));
        }
        start.token = Some(time(0, 1, n_prompt)?);
        Ok(())
    }

    /// All tests of all numbers of threads with one session.
    fn session(&mut self, session: &mut Session<'_>, (n_batch, n_ubatch): (usize, usize)) -> Result<()> {
        let pools = self.pools;
        let settings = *session.settings();
        // One for all numbers of threads: the context is theirs, too.
        let mut runner = Runner::new(session, n_batch);
        for pool in pools {
            let n_threads = pool.n_batch();
            self.bandwidth(pool);
            let config = Config {
                n_threads,
                n_batch,
                n_ubatch,
                type_k: settings.type_k,
                type_v: settings.type_v,
            };
            for test in &self.plan.tests {
                let mut measured = pool.enter(|| measure(&mut runner, self.plan, config, *test))?;
                measured.model = self.results.models.len() - 1;
                if test.n_prompt == 0 {
                    let traffic = Traffic::of(runner.model(), &settings, test.n_depth, test.n_gen);
                    measured.traffic = Some(traffic);
                }
                self.take(measured)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, mut measured: Measured) -> Result<()> {
        let n_cores = self.results.n_cores;
        let interval = measured.interval;
        measured.contended =
            interval.map_or(Vec::new(), |i| i.contention(measured.config.n_threads, n_cores));
        self.results.measured.push(measured);
        let done = self.results.measured.len();
        let measured = &self.results.measured[done - 1];
        if !self.args.talk.quiet {
            say(&format!(
                "{done} of {}: {}",
                self.plan.n_runs(),
                self.results.line(measured)
            ));
        }
        self.output.one(&self.results, measured)
    }

    /// Measures the memory once for each number of threads.
    fn bandwidth(&mut self, pool: &Pool) {
        let n_threads = pool.n_batch();
        let known = self.results.bandwidths.iter().any(|b| b.n_threads == n_threads);
        let generates = self.plan.tests.iter().any(|t| t.n_prompt == 0);
        if known || self.args.no_bandwidth || self.args.in_turn || !generates {
            return;
        }
        let measured: Option<Bandwidth> = pool.enter(bandwidth::measure);
        self.results.bandwidths.extend(measured);
    }
}

/// Warm-up and repetitions of one test.
fn measure(
    runner: &mut Runner<'_, '_>,
    plan: &Plan,
    config: Config,
    test: Test,
) -> std::result::Result<Measured, Failure> {
    let repetitions = plan.repetitions as usize;
    let mut turn = if plan.in_turn {
        in_turn::wait(&test, 0)?
    } else {
        Turn::Repetition
    };
    // A sweep goes on with the same weights: its first step has warmed them up.
    let warmup = if plan.warmup && (plan.sweep.is_none() || test.n_depth == 0) {
        let mut series = u64::from(u32::MAX);
        let mut once = || {
            series -= 1;
            runner.once(&test, series)
        };
        Some(warm_up(&mut once)?)
    } else {
        None
    };
    let mut watch = Watch::start();
    let mut interval = None;
    let runs = warmup.map_or(1, |w| w.runs());
    // Every run has its own tokens, as another prompt would; the last ones are those that a longer context begins
    // with.
    let mut series = repetitions as u64 * u64::from(runs);
    let mut seconds = Vec::with_capacity(repetitions);
    while turn == Turn::Repetition {
        let mut sum = 0.0;
        for _ in 0..runs {
            series -= 1;
            sum += runner.once(&test, series)?;
        }
        let mean = sum / f64::from(runs);
        seconds.push(mean);
        if plan.in_turn {
            interval = Interval::both(interval, watch.stop());
            in_turn::tell(&test, seconds.len(), mean);
        }
        if seconds.len() == repetitions {
            break;
        }
        if plan.in_turn {
            turn = in_turn::wait(&test, seconds.len())?;
            watch = Watch::start();
        }
    }
    Ok(Measured {
        model: 0,
        config,
        test,
        warmup,
        runs,
        seconds,
        traffic: None,
        interval: if plan.in_turn { interval } else { watch.stop() },
        contended: Vec::new(),
    })
}
