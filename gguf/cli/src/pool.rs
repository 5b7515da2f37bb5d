//! The threads of a program.

use std::sync::mpsc::channel;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::{Failure, Result, room_for_threads};

/// More threads than any machine gains from; starting far more would take minutes.
pub const MAX_THREADS: usize = 4096;

/// How many threads are meant by `n`: as many, or for 0 those that the machine offers.
///
/// # Errors
/// More than [`MAX_THREADS`].
pub fn n_threads(n: usize) -> Result<usize> {
    if n > MAX_THREADS {
        return Err(Failure::Usage(format!(
            "threads: expected at most {MAX_THREADS}, found {n}"
        )));
    }
    Ok(match n {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    })
}

/// A rayon pool of `n` threads (0 = as many as the machine offers). Programs run all parallel work inside
/// `pool.install`.
pub fn thread_pool(n: usize) -> Result<rayon::ThreadPool> {
    let n = n_threads(n)?;
    room_for_threads(n).map_err(|e| Failure::Usage(format!("threads: {e}")))?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(n)
        .thread_name(|i| format!("worker-{i}"))
        .build()
        .map_err(|e| Failure::Usage(format!("cannot start {n} threads: {e}")))
        .inspect(|pool| drop(pool.broadcast(|_| ())))
}

/// Starts a thread beside those of the pool.
///
/// # Errors
/// A system that has none to give.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    f: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    room_for_threads(1).map_err(|e| Failure::Usage(format!("threads: {e}")))?;
    let (begins, begun) = channel::<()>();
    let thread = Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, move || {
            drop(begins);
            f()
        })
        .map_err(|e| Failure::Usage(format!("cannot start a thread: {e}")))?;
    // What a thread takes as it begins was checked for; nothing else may take it meanwhile.
    let _ = begun.recv();
    Ok(thread)
}

#[cfg(test)]
mod tests {
    use super::{spawn_scoped, thread_pool};

    #[test]
    fn threads_beside_a_pool_have_names() {
        let name = || std::thread::current().name().map(str::to_owned);
        let found = std::thread::scope(|s| spawn_scoped(s, "reader", name).expect("a thread").join());
        assert_eq!(found.expect("no panic").as_deref(), Some("reader"));
    }

    #[test]
    fn pools_have_the_threads_asked_for() {
        assert!(thread_pool(super::MAX_THREADS + 1).is_err());
        assert_eq!(thread_pool(3).expect("three threads").current_num_threads(), 3);
        assert!(
            thread_pool(0)
                .expect("the machine's threads")
                .current_num_threads()
                >= 1
        );
    }
}
