//! A parallel region: tasks that threads claim one by one.
//!
//! The ticket is one word: how many threads may claim, and how many tasks nobody has claimed yet. A claim takes one of
//! them by compare-exchange. `done` counts tasks, never threads: a region ends when every claimed task has ended, so a
//! thread that sleeps through it is not waited for.
//!
//! A claim needs no number of the region. What a task is, is read behind the claim: a claim that succeeds took a task
//! of the region that is under way then, whatever the thread saw before, and that region cannot end before the task has.

#![expect(
    unsafe_code,
    reason = "threads of a pool outlive what a region's tasks borrow"
)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// What a task does, given its number.
pub(super) type Task<'a> = dyn Fn(u32) + Sync + 'a;

/// Two cache lines of its own: processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Line<T>(pub(super) T);

#[derive(Clone, Copy)]
struct Job {
    task: *const Task<'static>,
    n_tasks: u32,
}

/// At most one region at a time.
pub(super) struct Region {
    /// Threads that may claim in the upper half, tasks that are not claimed in the lower.
    ticket: Line<AtomicU64>,
    /// Tasks that other threads than the caller have ended.
    done: Line<AtomicU32>,
    /// Written by the caller alone, between regions.
    job: Line<UnsafeCell<Option<Job>>>,
    /// Whether there is a region.
    busy: AtomicBool,
    /// What the first panic carried.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is the only part that is not `Sync` by itself. It is written by the thread that holds `busy`, while no
// task is claimed or can be claimed, and read by threads behind a claim. The write happens before the reads: the ticket is
// stored behind it with release, and a claim, which acquires, reads that store or a claim of it. The reads happen before
// the next write: a thread counts its tasks as done behind them, with release, and a region ends, which is when `busy` is
// given back, behind an acquiring read of that count. A job's pointer is to a closure that is `Sync`.
unsafe impl Sync for Region {}
// SAFETY: as above; a job is never dropped, and its closure stays where it is.
unsafe impl Send for Region {}

/// Ends the process where a region would be left while its tasks run: they borrow from the caller.
struct NoWayOut;

impl Drop for NoWayOut {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Region {
    pub(super) fn new() -> Self {
        Self {
            ticket: Line::default(),
            done: Line::default(),
            job: Line(UnsafeCell::new(None)),
            busy: AtomicBool::new(false),
            panic: Mutex::new(None),
        }
    }

    /// Runs `n_tasks` tasks on this thread and on those threads that come to [`Self::help`] and are numbered below
    /// `n_threads`; false, and nothing done, where a region is under way. `begun` is called when tasks can be claimed,
    /// `wait` again and again while the last ones run elsewhere. A panic of a task is thrown again here when all ended.
    pub(super) fn run(
        &self,
        n_threads: u32,
        n_tasks: u32,
        task: &Task<'_>,
        begun: impl FnOnce(),
        mut wait: impl FnMut(),
    ) -> bool {
        if self.busy.swap(true, Ordering::Acquire) {
            return false;
        }
        let task: *const Task<'_> = task;
        // SAFETY: only the lifetime changes. The pointer is read by threads that have claimed a task of this region, and
        // this function does not return or unwind (`NoWayOut`) before all of these have ended.
        let task = unsafe { lasting(task) };
        // SAFETY: this thread holds `busy`, and no task is claimed or can be; see `Sync` above.
        unsafe { *self.job.0.get() = Some(Job { task, n_tasks }) };
        self.done.0.store(0, Ordering::Relaxed);
        let no_way_out = NoWayOut;
        // Sequentially consistent with the flags of threads that go to sleep.
        let ticket = u64::from(n_threads) << 32 | u64::from(n_tasks);
        self.ticket.0.store(ticket, Ordering::SeqCst);
        begun();
        let own = self.work(0);
        while self.done.0.load(Ordering::Acquire) != n_tasks - own {
            wait();
        }
        std::mem::forget(no_way_out);
        let panic = lock(&self.panic).take();
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
        true
    }

    /// Takes part as thread `thread`, which is not 0: whether it did.
    pub(super) fn help(&self, thread: u32) -> bool {
        let n = self.work(thread);
        if n > 0 {
            self.done.0.fetch_add(n, Ordering::Release);
        }
        n > 0
    }

    /// Whether there is a task to claim for a thread.
    pub(super) fn has_work(&self, thread: u32) -> bool {
        is_open(self.ticket.0.load(Ordering::SeqCst), thread)
    }

    /// Tasks that nobody has claimed, and threads that may.
    pub(super) fn unclaimed(&self) -> (u32, u32) {
        let ticket = self.ticket.0.load(Ordering::Relaxed);
        (ticket as u32, (ticket >> 32) as u32)
    }

    /// Claims and does tasks while there are some: how many it did.
    fn work(&self, thread: u32) -> u32 {
        let mut n = 0;
        while let Some(left) = self.claim(thread) {
            // SAFETY: behind a claim, whose task is counted as done later, by the caller of this; see `Sync` above.
            let job = unsafe { *self.job.0.get() };
            let job = job.expect("a job was written in front of the ticket");
            // SAFETY: the region, and so what the closure borrows, lasts until the task claimed above has been counted.
            let task = unsafe { &*job.task };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(job.n_tasks - left))) {
                let first = &mut *lock(&self.panic);
                if first.is_none() {
                    *first = Some(payload);
                } else {
                    // To drop it could panic again.
                    std::mem::forget(payload);
                }
            }
            n += 1;
        }
        n
    }

    /// Takes a task: how many there were.
    fn claim(&self, thread: u32) -> Option<u32> {
        let mut ticket = self.ticket.0.load(Ordering::Relaxed);
        while is_open(ticket, thread) {
            let taken =
                self.ticket
                    .0
                    .compare_exchange_weak(ticket, ticket - 1, Ordering::Acquire, Ordering::Relaxed);
            match taken {
                Ok(ticket) => return Some(ticket as u32),
                Err(now) => ticket = now,
            }
        }
        None
    }
}

/// Forgets how long a task lasts.
///
/// # Safety
/// The result must not be used when the task is gone.
#[expect(
    clippy::transmute_ptr_to_ptr,
    reason = "a cast cannot change the lifetime of a trait object"
)]
unsafe fn lasting<'a>(task: *const Task<'a>) -> *const Task<'static> {
    // SAFETY: only the lifetime changes, and the caller keeps to it.
    unsafe { std::mem::transmute::<*const Task<'a>, *const Task<'static>>(task) }
}

fn is_open(ticket: u64, thread: u32) -> bool {
    ticket as u32 > 0 && thread < (ticket >> 32) as u32
}

/// Locks what no panic leaves half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
