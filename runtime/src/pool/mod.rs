//! The threads that a model computes with.
//!
//! A [`Pool`] has some threads and lends them to whoever [enters](Pool::enter) it; the thread that enters is one of its
//! threads meanwhile. Inside, [`run`] and the functions over it share work out, and return when all is done. They are
//! free functions, which find the pool that the calling thread has entered; without one, and in tasks themselves, all is
//! done on the calling thread. Which thread does what depends on chance, results must not: each task writes what is its
//! own.
//!
//! Sharing out costs a fraction of a microsecond while threads are awake: they look for work for some time, then let
//! others go first, then sleep. Nothing ever waits for a thread that has not begun a task.
//!
//! A pool has two counts of threads: tokens that are [generated](generating) one by one wait for memory, which fewer
//! threads may read as fast, all other work takes as many as there are.

mod cpus;
mod items;
mod placement;
mod region;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};

pub use cpus::{CpuSet, default_threads};
pub use gguf_cli::MAX_THREADS;
pub use items::{MIN_ROWS, for_each, map, rows, try_for_each};
use placement::Seats;
pub(crate) use placement::{Beside, KeptAffinity};
pub use placement::{Numa, Placement};
use region::{Line, Region};

use crate::memory;

/// Looks for work before a thread lets others go first, each some tens of nanoseconds apart.
const SPINS: u32 = 20_000;
/// The same where there are few processors, which others may want.
const SPINS_OF_FEW: u32 = 4_000;
/// Processors that are few.
const FEW: usize = 4;
/// Times that a thread lets others go first before it sleeps.
const YIELDS: u32 = 16;
/// Threads that each thread wakes: all are awake after a few steps, and none has to wake many.
const WAKES: usize = 2;

/// What a pool is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolOptions {
    /// Threads for prompts and all other work, with the one that enters; 0 takes as many as generate.
    pub n_batch: usize,
    /// Threads for tokens that are generated one by one; 0 takes [`default_threads`], or with a placement a thread for
    /// each core of its processors, but no more than a control group grants.
    pub n_generating: usize,
    /// How often a thread looks for work before it lets others go first; as suits the machine if not given.
    pub spins: Option<u32>,
    /// Where threads run and memory lies.
    pub placement: Placement,
}

impl PoolOptions {
    /// As many threads for all work.
    pub fn threads(n: usize) -> Self {
        Self {
            n_generating: n,
            ..Self::default()
        }
    }
}

/// Threads to compute with. Dropping it ends them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads of a pool see.
struct Shared {
    region: Region,
    /// One for each thread but the first.
    workers: Box<[Line<Worker>]>,
    n_batch: usize,
    n_generating: usize,
    spins: u32,
    /// None where the system decides.
    seats: Option<Seats>,
    /// Whether a thread that has entered is on the first one.
    first_seat_taken: AtomicBool,
    huge_pages: bool,
    ended: AtomicBool,
    /// Threads that sleep or are about to.
    n_asleep: Line<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Worker {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("n_threads", &self.n_threads())
            .field("n_batch", &self.n_batch)
            .field("n_generating", &self.n_generating)
            .field("spins", &self.spins)
            .finish_non_exhaustive()
    }
}

/// The pool that a thread has entered.
struct Entered {
    shared: Arc<Shared>,
    /// Threads that share work now.
    n_threads: usize,
}

thread_local! {
    /// None in tasks, too, so that what they share out is done by themselves.
    static ENTERED: Cell<Option<Entered>> = const { Cell::new(None) };
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// More than [`MAX_THREADS`], or more than the system has to give; processors that the program may not use.
    pub fn new(options: &PoolOptions) -> std::io::Result<Self> {
        let seats = options.placement.seats().map_err(invalid)?;
        Self::with_seats(options, seats)
    }

    fn with_seats(options: &PoolOptions, seats: Option<Seats>) -> std::io::Result<Self> {
        let or = |n: usize, usual: usize| if n == 0 { usual } else { n };
        let n_usable = cpus::n_usable();
        let (n_cpus, usual) = seats.as_ref().map_or_else(
            || (n_usable, default_threads()),
            // A control group may grant less.
            |seats| (seats.all.len().min(n_usable), seats.n_cores.min(n_usable)),
        );
        let n_generating = or(options.n_generating, usual);
        let n_batch = or(options.n_batch, n_generating);
        let n_threads = n_batch.max(n_generating);
        if n_threads > MAX_THREADS {
            return Err(invalid(format!(
                "expected at most {MAX_THREADS}, found {n_threads}"
            )));
        }
        if let Some(seats) = &seats {
            seats.check(n_threads).map_err(invalid)?;
        }
        gguf_cli::room_for_threads(n_threads - 1).map_err(std::io::Error::other)?;
        let usual = match n_cpus {
            // They would look for work in the time of those that have some.
            n if n < n_threads => 0,
            n if n <= FEW => SPINS_OF_FEW,
            _ => SPINS,
        };
        let shared = Arc::new(Shared {
            region: Region::new(),
            workers: (1..n_threads).map(|_| Line::default()).collect(),
            n_batch,
            n_generating,
            spins: options.spins.unwrap_or(usual),
            seats,
            first_seat_taken: AtomicBool::new(false),
            huge_pages: options.placement.huge_pages,
            ended: AtomicBool::new(false),
            n_asleep: Line::default(),
        });
        let mut pool = Self {
            shared,
            threads: Vec::new(),
        };
        let _back = pool.shared.seats.is_some().then(KeptAffinity::new);
        let take = |i| pool.shared.seats.as_ref().map_or(Ok(()), |seats| seats.take(i));
        // Whether the one that enters can have it.
        take(0)?;
        let (begins, begun) = std::sync::mpsc::channel::<()>();
        for i in 1..n_threads {
            let shared = Arc::clone(&pool.shared);
            let begins = begins.clone();
            // Which the thread inherits.
            take(i)?;
            let thread = std::thread::Builder::new().name(format!("worker-{i}"));
            // What has started ends with the pool.
            pool.threads.push(thread.spawn(move || {
                drop(begins);
                shared.work(i);
            })?);
        }
        // What threads take as they begin was checked for; nothing else may take it meanwhile.
        drop(begins);
        let _ = begun.recv();
        Ok(pool)
    }

    /// Calls `f` with this thread as one of the pool's. Several threads may be inside at a time: one shares its work
    /// out, what the others would share out they do themselves meanwhile. Where threads are placed, the first one that is
    /// inside has the first seat, the others run anywhere on the pool's processors.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let entered = Entered {
            shared: Arc::clone(&self.shared),
            n_threads: self.shared.n_batch,
        };
        let _seat = self.seat();
        with_entered(Some(entered), f)
    }

    /// Has this thread run where a thread that enters does, until the result is dropped.
    fn seat(&self) -> Option<Seat<'_>> {
        let seats = self.shared.seats.as_ref()?;
        // A thread that is inside stays where it is.
        if entered(|e| e.is_some_and(|e| Arc::ptr_eq(&e.shared, &self.shared))) {
            return None;
        }
        let back = KeptAffinity::new();
        let taken = &self.shared.first_seat_taken;
        let is_first = !taken.swap(true, Ordering::Relaxed);
        let place = if is_first { seats.take(0) } else { seats.take_any() };
        // The processors were there when the pool was made; without them nothing else changes.
        drop(place);
        Some(Seat {
            _back: back,
            _taken: is_first.then(|| Taken(taken)),
        })
    }

    /// Nodes of memory that threads are spread over; 1 where they are not.
    pub(crate) fn n_nodes(&self) -> usize {
        self.shared.seats.as_ref().map_or(1, Seats::n_nodes)
    }

    /// Threads for prompts and all other work, with the one that enters.
    pub fn n_batch(&self) -> usize {
        self.shared.n_batch
    }

    /// Threads for tokens that are generated one by one.
    pub fn n_generating(&self) -> usize {
        self.shared.n_generating
    }
}

/// The place of a thread that has entered.
struct Seat<'a> {
    /// Put back first: who takes the seat next finds it empty.
    _back: KeptAffinity,
    _taken: Option<Taken<'a>>,
}

/// Says that somebody has the first seat, until it is dropped.
struct Taken<'a>(&'a AtomicBool);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn invalid(what: String) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, what)
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.wake(usize::MAX, self.shared.n_threads());
        for thread in self.threads.drain(..) {
            // Panics of tasks were thrown where the work was shared out.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// What thread `i` does all its life.
    fn work(&self, i: usize) {
        let worker = &self.workers[i - 1].0;
        worker.thread.get_or_init(std::thread::current);
        let number = i as u32;
        let mut idle = 0;
        while !self.ended.load(Ordering::Relaxed) {
            if self.region.help(number) {
                idle = 0;
            } else if idle < self.spins {
                std::hint::spin_loop();
                idle += 1;
            } else if idle < self.spins + YIELDS {
                std::thread::yield_now();
                idle += 1;
            } else {
                self.sleep(worker, number);
                idle = 0;
            }
        }
    }

    /// Sleeps until there may be work.
    fn sleep(&self, worker: &Worker, number: u32) {
        self.n_asleep.0.fetch_add(1, Ordering::SeqCst);
        worker.asleep.store(true, Ordering::SeqCst);
        // Whoever shares work out does so before it looks for sleepers, this thread the other way round: one of the two
        // sees the other.
        if self.region.has_work(number) || self.ended.load(Ordering::SeqCst) {
            self.wakes_up(worker);
            return;
        }
        while worker.asleep.load(Ordering::Acquire) {
            std::thread::park();
        }
        let (n_tasks, n_threads) = self.region.unclaimed();
        self.wake(WAKES.min(n_tasks as usize), n_threads as usize);
    }

    /// Whether it slept.
    fn wakes_up(&self, worker: &Worker) -> bool {
        let slept = worker.asleep.swap(false, Ordering::AcqRel);
        if slept {
            self.n_asleep.0.fetch_sub(1, Ordering::Relaxed);
        }
        slept
    }

    /// Wakes up to `n` of the first `n_threads` threads.
    fn wake(&self, n: usize, n_threads: usize) {
        if n == 0 || self.n_asleep.0.load(Ordering::SeqCst) == 0 {
            return;
        }
        let first = &self.workers[..(n_threads.max(1) - 1).min(self.workers.len())];
        let asleep = first.iter().map(|w| &w.0);
        let woken = asleep.filter(|w| w.asleep.load(Ordering::SeqCst) && self.wakes_up(w));
        for worker in woken.take(n) {
            // A thread says who it is before it ever sleeps.
            if let Some(thread) = worker.thread.get() {
                thread.unpark();
            }
        }
    }

    /// Runs tasks on the first `n_threads` threads.
    fn run(&self, n_threads: usize, n_tasks: u32, task: &region::Task<'_>) -> bool {
        let begun = || self.wake(WAKES.min(n_tasks as usize - 1), n_threads);
        let mut waits = 0;
        let wait = || {
            if waits < self.spins {
                std::hint::spin_loop();
                waits += 1;
            } else {
                std::thread::yield_now();
            }
        };
        self.region.run(n_threads as u32, n_tasks, task, begun, wait)
    }
}

/// Puts back which pool the thread had entered.
struct Back(Option<Entered>);

impl Drop for Back {
    fn drop(&mut self) {
        ENTERED.set(self.0.take());
    }
}

/// Calls `f` with another pool entered, and puts back what was.
fn with_entered<R>(entered: Option<Entered>, f: impl FnOnce() -> R) -> R {
    let _back = Back(ENTERED.replace(entered));
    f()
}

/// Looks at the pool that this thread has entered.
fn entered<R>(f: impl FnOnce(Option<&Entered>) -> R) -> R {
    let entered = ENTERED.take();
    let result = f(entered.as_ref());
    ENTERED.set(entered);
    result
}

/// Threads that work is shared among: 1 where the calling thread has entered no pool, and in tasks.
pub fn n_threads() -> usize {
    entered(|e| e.map_or(1, |e| e.n_threads))
}

/// How threads that are started here, beside those of the pool that this thread has entered, are to run.
pub(crate) fn beside() -> Beside {
    let seats = |e: &Entered| e.shared.seats.as_ref().map(Seats::beside);
    entered(|e| e.and_then(seats)).unwrap_or_default()
}

/// Calls `f` with this thread anywhere on the processors of the pool that it has entered, for what starts threads of
/// its own: these run where the thread that starts them does.
pub fn off_seat<R>(f: impl FnOnce() -> R) -> R {
    let beside = beside();
    let _back = beside.has_seats().then(KeptAffinity::new);
    beside.leave_seat();
    f()
}

fn wants_huge_pages() -> bool {
    entered(|e| e.is_some_and(|e| e.shared.huge_pages))
}

/// Places fresh memory, which is all zero and which all threads will use, as the pool that this thread has entered was
/// asked to.
pub(crate) fn place<T: Copy + Default>(fresh: &mut [T]) {
    if wants_huge_pages() {
        memory::ask_for_huge_pages(fresh);
    }
    beside().spread(fresh);
}

/// `vec.resize(n, zero)` for memory that all threads will use: in huge pages, where those were asked for.
pub(crate) fn resize<T: Copy>(vec: &mut Vec<T>, n: usize, zero: T) {
    if n > vec.capacity() {
        vec.reserve(n - vec.len());
        if wants_huge_pages() {
            memory::ask_for_huge_pages(vec.spare_capacity_mut());
        }
    }
    vec.resize(n, zero);
}

/// Calls `task` with each number below `n_tasks`, in any order and on any thread, and returns when all have returned.
///
/// # Panics
/// With what a task panicked with, when all others have ended.
pub fn run(n_tasks: usize, task: impl Fn(usize) + Sync) {
    let serial = || (0..n_tasks).for_each(&task);
    let Some(entered) = ENTERED.take() else {
        return serial();
    };
    // What a task shares out, it does itself.
    let back = Back(Some(entered));
    let entered = back.0.as_ref().expect("put there above");
    match u32::try_from(n_tasks) {
        Ok(n) if n > 1 && entered.n_threads > 1 => {
            let done = entered.shared.run(entered.n_threads, n, &|i| task(i as usize));
            if !done {
                serial();
            }
        }
        _ => serial(),
    }
}

/// Calls `f` with as many threads as tokens that are generated one by one have.
pub fn generating<R>(f: impl FnOnce() -> R) -> R {
    let narrowed = entered(|e| {
        e.map(|e| Entered {
            shared: Arc::clone(&e.shared),
            n_threads: e.shared.n_generating,
        })
    });
    with_entered(narrowed, f)
}
