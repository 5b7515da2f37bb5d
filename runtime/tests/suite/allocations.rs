//! An allocator that counts what threads of marked pools ask for; other tests run beside them.

#![expect(unsafe_code, reason = "an allocator can only be made by unsafe functions")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use std::sync::Barrier;

use gguf_runtime::pool::{self, Pool, PoolOptions};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

fn note() {
    if COUNTED.try_with(Cell::get).unwrap_or(false) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: all calls are passed on to the system's allocator as they come.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// A pool whose threads are counted. Only one test may use it at a time.
pub(crate) fn counted_pool(n_threads: usize) -> Pool {
    let pool = Pool::new(&PoolOptions::threads(n_threads)).unwrap();
    // No thread takes a second task before each has one.
    let all = Barrier::new(n_threads);
    pool.enter(|| {
        pool::run(n_threads, |_| {
            COUNTED.set(true);
            all.wait();
        });
    });
    pool
}

/// Allocations of counted threads up to now.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}
