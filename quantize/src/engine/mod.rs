//! Reads, encodes and writes rows of tensors on all threads, each by position.
//!
//! A task is some rows of one tensor. Threads take tasks in the order of the tensors, read the rows, decode them once,
//! encode them for each target and write them where they belong in its files; nothing waits for anything else. Rows
//! are independent of each other, so the bytes depend neither on the number of threads nor on where tasks end.
//! Memory is what the tasks in work take: bytes of rows, never of tensors.

mod fault;
mod queue;
mod task;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gguf::GgufFile;
use gguf::resumable::Outputs;
use gguf::source::Source;
use gguf_cli::{Failure, Result, spawn_scoped};
use rayon::ThreadPool;

use crate::plan::Step;

use queue::{Done, Queue, Stretch, Task};
use task::{Scratch, Sink};

pub use fault::{Fault, first_not_finite};
pub(crate) use task::{Importances, Known, RowSizes, as_importance, encoder, row_bytes};

/// Bytes of a task where memory allows: rows in the source and in all targets' types.
const TASK_BYTES: u64 = 2 << 20;

/// Time to the first note of what is on disk. From note to note it doubles, so that short runs can be resumed and long
/// ones do not wait for disks.
pub(crate) const FIRST_CHECKPOINT: Duration = Duration::from_millis(100);
/// Time between two notes at most.
const LAST_CHECKPOINT: Duration = Duration::from_secs(10);

/// Bytes of the source behind which what was made of them is given to the disk.
const FLUSH_BYTES: u64 = 64 << 20;
/// Time between looks at whether there are so many.
const FLUSH_PAUSE: Duration = Duration::from_millis(10);

/// Where a tensor goes: the output by its number, and the byte in it.
pub(crate) type Place = (usize, u64);

/// One of the results.
pub(crate) struct Target<'a> {
    /// All its tensors.
    pub(crate) steps: &'a [Step],
    /// For each of them where it goes; `None` for those that are another run's.
    pub(crate) places: Vec<Option<Place>>,
}

impl Target<'_> {
    /// Where a tensor goes; `None` if it is another run's.
    fn sink(&self, step: usize) -> Option<Sink<'_>> {
        let (output, at) = self.places[step]?;
        Some(Sink {
            step: &self.steps[step],
            output,
            at,
        })
    }
}

/// All there is to do. Targets have the same tensors in the same order.
pub(crate) struct Work<'a> {
    pub(crate) file: &'a GgufFile,
    pub(crate) targets: &'a [Target<'a>],
    pub(crate) outputs: &'a Outputs,
    pub(crate) importances: &'a Importances<'a>,
    /// Bytes for the tasks of all threads.
    pub(crate) max_memory: u64,
    /// Time to the first checkpoint.
    pub(crate) first_checkpoint: Duration,
    /// Hears of the bytes that were read.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// What the threads share.
struct Shared {
    queue: Mutex<Queue>,
    done: Mutex<Done>,
    /// When the last checkpoint was, and the time to the next.
    checkpoint: Mutex<(Instant, Duration)>,
    stop: AtomicBool,
    /// Bytes that were read.
    read: AtomicU64,
    /// Whether all threads are through.
    ended: AtomicBool,
    /// The first thing that went wrong, by the task's place.
    failure: Mutex<Option<(u64, Failure)>>,
}

/// Tells a thread that the work is at its end, when dropped.
struct End<'a>(&'a AtomicBool, std::thread::Thread);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
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
            checkpoint: Mutex::new((Instant::now(), self.first_checkpoint)),
            stop: AtomicBool::new(false),
            read: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            failure: Mutex::new(None),
        };
        let flushed = std::thread::scope(|scope| {
            let flusher = spawn_scoped(scope, "flusher", || self.flush(&shared))?;
            // Also where a worker panics, so that nobody waits for it.
            let end = End(&shared.ended, flusher.thread().clone());
            pool.broadcast(|_| self.work(&shared));
            drop(end);
            flusher.join().expect("flushing does not panic")
        });
        let failure = shared.failure.lock().expect("no thread panicked").take();
        let result = failure.map_or(flushed, |(_, failure)| Err(failure));
        if !self.outputs.is_resumable() {
            return result;
        }
        // Whatever comes next, what is done need not be done again. What went wrong first is what the caller hears.
        let noted = self.checkpoint(&shared);
        result.and(noted)
    }

    /// Has the disk write beside the work, which a disk that fails ends.
    fn flush(&self, shared: &Shared) -> Result<()> {
        let mut flushed = 0;
        while !shared.ended.load(Ordering::Relaxed) {
            let done = shared.read.load(Ordering::Relaxed);
            if done - flushed >= FLUSH_BYTES {
                let result = self.outputs.flush();
                result.inspect_err(|_| shared.stop.store(true, Ordering::Relaxed))?;
                flushed = done;
            } else {
                std::thread::park_timeout(FLUSH_PAUSE);
            }
        }
        Ok(())
    }

    fn stretches(&self, n_threads: usize) -> Result<Vec<Stretch>> {
        let budget = self.max_memory / n_threads.max(1) as u64;
        let stretch = |step: usize| {
            let bytes = Bytes::of(self.file, self.targets, step)?;
            Ok(Stretch {
                n_rows: n_rows(self.targets, step),
                per_task: bytes.map_or(0, |bytes| bytes.rows_within(budget)),
            })
        };
        (0..n_steps(self.targets)).map(stretch).collect()
    }

    fn work(&self, shared: &Shared) {
        let mut scratch = Scratch::default();
        while !shared.stop.load(Ordering::Relaxed) {
            let next = shared.queue.lock().expect("no thread panicked").next();
            let Some(task) = next else { return };
            let result = self.one(&task, &mut scratch).and_then(|n| {
                (self.progress)(n);
                shared.read.fetch_add(n, Ordering::Relaxed);
                shared
                    .done
                    .lock()
                    .expect("no thread panicked")
                    .add(task.span.clone());
                self.checkpoint_if_due(shared)
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
        let sinks = self.targets.iter().filter_map(|t| t.sink(task.step));
        let sinks: Vec<Sink<'_>> = sinks.collect();
        task::run(self, task, &sinks, scratch)
    }

    /// Flushes and notes from time to time.
    fn checkpoint_if_due(&self, shared: &Shared) -> Result<()> {
        // Another thread that is at it does it for all.
        let Ok(mut last) = shared.checkpoint.try_lock() else {
            return Ok(());
        };
        let (at, pause) = *last;
        if at.elapsed() < pause {
            return Ok(());
        }
        self.checkpoint(shared)?;
        *last = (Instant::now(), LAST_CHECKPOINT.min(2 * pause));
        Ok(())
    }

    /// Flushes what is done and notes it; closes outputs that are complete.
    fn checkpoint(&self, shared: &Shared) -> Result<()> {
        let done = shared.done.lock().expect("no thread panicked").up_to();
        let open_from = self.step_of(done);
        let places = self.targets.iter().flat_map(|t| &t.places[open_from..]);
        let open: HashSet<usize> = places.flatten().map(|(output, _)| *output).collect();
        Ok(self.outputs.checkpoint(done, &|output| !open.contains(&output))?)
    }

    /// The step that a row, counted over all tensors, belongs to.
    fn step_of(&self, row: u64) -> usize {
        let mut end = 0;
        let is_done = |&step: &usize| {
            end += n_rows(self.targets, step);
            end <= row
        };
        (0..n_steps(self.targets)).take_while(is_done).count()
    }
}

/// Tensors, of which each target has as many.
fn n_steps(targets: &[Target<'_>]) -> usize {
    targets.first().map_or(0, |t| t.steps.len())
}

/// Rows of a tensor, over all its matrices; none where it has no values.
fn n_rows(targets: &[Target<'_>], step: usize) -> u64 {
    let tensor = &targets[0].steps[step].source;
    if tensor.n_bytes == 0 {
        0
    } else {
        tensor.shape.n_rows()
    }
}

/// Bytes that rows of one tensor take in memory.
struct Bytes<'a> {
    /// The tensor's file and its first byte there.
    source: &'a dyn Source,
    at: u64,
    /// A row in the source.
    from: u64,
    /// A row in the source and in the types that targets encode it as.
    row: u64,
    /// Rows that are read together.
    unit: u64,
    /// Rows of numbers: those that were decoded, and the importance of a matrix.
    values: u64,
    n_rows: u64,
}

impl<'a> Bytes<'a> {
    /// `None` for a tensor that no target of this run takes.
    fn of(file: &'a GgufFile, targets: &[Target<'_>], step: usize) -> Result<Option<Self>> {
        let takes = |t: &&Target<'_>| t.places[step].is_some();
        let n_rows = n_rows(targets, step);
        if n_rows == 0 || !targets.iter().any(|t| takes(&t)) {
            return Ok(None);
        }
        let tensor = &targets[0].steps[step].source;
        let sizes = RowSizes::of(&targets[0].steps[step])?;
        let mut row = sizes.from;
        let mut n_decoded = 0;
        let mut n_weights = 0;
        for target in targets.iter().filter(takes) {
            let step = &target.steps[step];
            if !step.is_copy() {
                row += row_bytes(step, step.to)?;
                n_decoded = sizes.unit;
                n_weights += usize::from(step.is_weighted());
            }
        }
        Ok(Some(Self {
            source: file.part(tensor).source(),
            at: file.tensor_range(tensor).start,
            from: sizes.from as u64,
            row: row as u64,
            unit: sizes.unit as u64,
            values: ((n_decoded + n_weights) * sizes.n_cols * size_of::<f32>()) as u64,
            n_rows,
        }))
    }

    /// What a task of so many rows takes.
    fn of_rows(&self, n_rows: u64) -> u64 {
        let len = n_rows.min(self.n_rows).saturating_mul(self.from);
        let reading = self.source.advice(self.at, len).memory;
        n_rows
            .saturating_mul(self.row)
            .saturating_add(self.values)
            .saturating_add(reading)
    }

    /// What the smallest task takes.
    fn least(&self) -> u64 {
        self.of_rows(self.unit)
    }

    /// Rows of a task: as many as are well read at once, where memory allows.
    fn rows_within(&self, budget: u64) -> u64 {
        let len = self.n_rows.saturating_mul(self.from);
        let at_once = self.source.advice(self.at, len).at_once.max(TASK_BYTES);
        let mut n = (at_once / self.row.max(1)).min(self.n_rows.next_multiple_of(self.unit));
        while n > self.unit && self.of_rows(n) > budget {
            n /= 2;
        }
        (n / self.unit * self.unit).max(self.unit)
    }
}

/// Bytes that one thread needs at least: for the smallest task of the largest rows.
pub(crate) fn least_memory(file: &GgufFile, targets: &[Target<'_>]) -> Result<u64> {
    let mut least = 0;
    for step in 0..n_steps(targets) {
        least = least.max(Bytes::of(file, targets, step)?.map_or(0, |b| b.least()));
    }
    Ok(least)
}

/// Bytes of the source that a run reads behind the first `done` rows.
pub(crate) fn source_bytes(targets: &[Target<'_>], done: u64) -> u64 {
    let mut first = 0;
    let mut bytes = 0;
    for step in 0..n_steps(targets) {
        let n = n_rows(targets, step);
        if targets.iter().any(|t| t.places[step].is_some()) && n > 0 {
            let left = n - done.saturating_sub(first).min(n);
            bytes += targets[0].steps[step].source.n_bytes / n * left;
        }
        first += n;
    }
    bytes
}

#[cfg(test)]
mod tests;
