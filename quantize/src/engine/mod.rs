//! Reads, encodes and writes rows of tensors on all threads, each by position.
//!
//! A task is some rows of one tensor. Threads take tasks in the order of the tensors, read the rows, decode them once,
//! encode them for each target and write them where they belong in its files; nothing waits for anything else. Rows
//! are independent of each other, so the bytes depend neither on the number of threads nor on where tasks end.
//! Memory is what the tasks in work take: bytes of rows, never of tensors.

mod fault;
mod queue;
mod task;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gguf::GgufFile;
use gguf::resumable::Outputs;
use gguf_cli::{Failure, Result};
use rayon::ThreadPool;

use crate::plan::Step;
use queue::{Done, Queue, Stretch, Task};
use task::{Scratch, Sink};

pub(crate) use task::{Importances, RowSizes, encoder, row_bytes};

/// Bytes of a task where memory allows: rows in the source and in all targets' types.
const TASK_BYTES: usize = 2 << 20;

/// Time between two notes of what is on disk.
pub(crate) const CHECKPOINT: Duration = Duration::from_secs(10);

/// Where a tensor goes: the output by its number, and the byte in it.
pub(crate) type Place = (usize, u64);

/// One of the results.
pub(crate) struct Target<'a> {
    /// All its tensors.
    pub(crate) steps: &'a [Step],
    /// For each of them where it goes; `None` for those that are another run's.
    pub(crate) places: Vec<Option<Place>>,
}

/// All there is to do. Targets have the same tensors in the same order.
pub(crate) struct Work<'a> {
    pub(crate) file: &'a GgufFile,
    pub(crate) targets: &'a [Target<'a>],
    pub(crate) outputs: &'a Outputs,
    pub(crate) importances: &'a Importances<'a>,
    /// Bytes for the tasks of all threads.
    pub(crate) max_memory: u64,
    /// Time between two checkpoints.
    pub(crate) every: Duration,
    /// Hears of the bytes that were read.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// What the threads share.
struct Shared {
    queue: Mutex<Queue>,
    done: Mutex<Done>,
    last_checkpoint: Mutex<Instant>,
    stop: AtomicBool,
    /// The first thing that went wrong, by the task's place.
    failure: Mutex<Option<(u64, Failure)>>,
}

impl Work<'_> {
    /// Does all but the first `done` rows, counted over all tensors.
    ///
    /// # Errors
    /// The first unsound row in the order of the tensors; a failed read or write.
    pub(crate) fn run(&self, done: u64, pool: &ThreadPool) -> Result<()> {
        let n_threads = pool.current_num_threads();
        let shared = Shared {
            queue: Mutex::new(Queue::new(self.stretches(n_threads)?, done)),
            done: Mutex::new(Done::new(done)),
            last_checkpoint: Mutex::new(Instant::now()),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
        };
        pool.broadcast(|_| self.work(&shared));
        let failure = shared.failure.into_inner().expect("no thread panicked");
        failure.map_or(Ok(()), |(_, failure)| Err(failure))
    }

    /// Bytes that one thread needs at least: for the smallest task of the largest rows.
    pub(crate) fn least_memory(&self) -> Result<u64> {
        let mut least = 0;
        for i in self.live_steps() {
            least = least.max(self.bytes_of(i)?.1);
        }
        Ok(least as u64)
    }

    fn live_steps(&self) -> impl Iterator<Item = usize> {
        let n = self.targets.first().map_or(0, |t| t.steps.len());
        (0..n).filter(|&i| self.targets.iter().any(|t| t.places[i].is_some()))
    }

    /// Bytes that a row of a step takes in the source and all targets, and those of the smallest task.
    fn bytes_of(&self, i: usize) -> Result<(usize, usize)> {
        let sizes = RowSizes::of(&self.targets[0].steps[i])?;
        let mut row = sizes.from;
        for target in self.targets.iter().filter(|t| t.places[i].is_some()) {
            let step = &target.steps[i];
            row += row_bytes(step, step.to)?;
        }
        let values = sizes.unit_bytes() - sizes.unit * sizes.from;
        Ok((row, sizes.unit * row + values))
    }

    fn stretches(&self, n_threads: usize) -> Result<Vec<Stretch>> {
        let steps = self.targets.first().map_or(&[][..], |t| t.steps);
        let budget = usize::try_from(self.max_memory / n_threads.max(1) as u64).unwrap_or(usize::MAX);
        let mut out = Vec::with_capacity(steps.len());
        for step in steps {
            let n_rows = if step.source.n_bytes == 0 { 0 } else { step.source.shape.n_rows() };
            out.push(Stretch { n_rows, per_task: 0 });
        }
        for i in self.live_steps().filter(|&i| steps[i].source.n_bytes > 0) {
            let unit = RowSizes::of(&steps[i])?.unit;
            let (row, least) = self.bytes_of(i)?;
            let more = TASK_BYTES.min(budget.saturating_sub(least)) / row.max(1);
            out[i].per_task = more.next_multiple_of(unit).max(unit) as u64;
        }
        Ok(out)
    }

    fn work(&self, shared: &Shared) {
        let mut scratch = Scratch::default();
        while !shared.stop.load(Ordering::Relaxed) {
            let next = shared.queue.lock().expect("no thread panicked").next();
            let Some(task) = next else { return };
            let result = self.one(&task, &mut scratch).and_then(|n| {
                (self.progress)(n);
                shared.done.lock().expect("no thread panicked").add(task.span.clone());
                self.checkpoint(shared)
            });
            if let Err(failure) = result {
                let mut first = shared.failure.lock().expect("no thread panicked");
                if first.as_ref().is_none_or(|(at, _)| *at > task.span.start) {
                    *first = Some((task.span.start, failure));
                }
                shared.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Does one task; returns the bytes read.
    fn one(&self, task: &Task, scratch: &mut Scratch) -> Result<u64> {
        let live = self.targets.iter().filter_map(|t| Some((&t.steps[task.step], t.places[task.step]?)));
        let mut writes: Vec<_> = live
            .map(|(step, (output, at))| {
                let write = move |bytes: &[u8]| -> Result<()> {
                    let at = at + task.rows.start * row_bytes(step, step.to)? as u64;
                    Ok(self.outputs.write_at(output, at, bytes)?)
                };
                (step, write)
            })
            .collect();
        let mut sinks: Vec<Sink<'_>> = writes
            .iter_mut()
            .map(|(step, write)| Sink { step, write })
            .collect();
        task::run(self.file, &task.rows, &mut sinks, self.importances, scratch)
    }

    /// Notes now and then what is on disk.
    fn checkpoint(&self, shared: &Shared) -> Result<()> {
        // Another thread that is at it does it for all.
        let Ok(mut last) = shared.last_checkpoint.try_lock() else {
            return Ok(());
        };
        if last.elapsed() < self.every {
            return Ok(());
        }
        let done = shared.done.lock().expect("no thread panicked").up_to();
        let open_from = self.step_of(done);
        let still_written = |output: usize| {
            let places = self.targets.iter().flat_map(|t| &t.places[open_from..]);
            places.flatten().any(|(o, _)| *o == output)
        };
        self.outputs.checkpoint(done, &|output| !still_written(output))?;
        *last = Instant::now();
        Ok(())
    }

    /// The step that a row, counted over all tensors, belongs to.
    fn step_of(&self, row: u64) -> usize {
        let steps = self.targets.first().map_or(&[][..], |t| t.steps);
        let mut end = 0;
        let is_done = |step: &Step| {
            end += if step.source.n_bytes == 0 { 0 } else { step.source.shape.n_rows() };
            end <= row
        };
        let mut is_done = is_done;
        steps.iter().take_while(|s| is_done(s)).count()
    }
}
