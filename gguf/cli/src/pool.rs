//! The threads of a program.

use crate::{Failure, Result};

/// More threads than any machine gains from; starting far more would take minutes.
pub const MAX_THREADS: usize = 4096;

/// A rayon pool of `n` threads (0 = as many as the machine offers). Programs run all parallel work inside
/// `pool.install`.
pub fn thread_pool(n: usize) -> Result<rayon::ThreadPool> {
    if n > MAX_THREADS {
        return Err(Failure::Usage(format!(
            "threads: expected at most {MAX_THREADS}, found {n}"
        )));
    }
    let n = match n {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    rayon::ThreadPoolBuilder::new()
        .num_threads(n)
        .thread_name(|i| format!("worker-{i}"))
        .build()
        .map_err(|e| Failure::Usage(format!("cannot start {n} threads: {e}")))
}

#[cfg(test)]
mod tests {
    use super::thread_pool;

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
