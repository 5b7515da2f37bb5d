//! Memory that the system refuses: one line and exit code 2, where the standard library would abort.
//!
//! A limit of the address space (`ulimit -v`) is met by the next thing that is asked for, wherever that is. Programs
//! that know what they need say so beforehand; this is for all else.

#![expect(
    unsafe_code,
    reason = "an allocator can only be made by unsafe functions; calls of the C library that end the program and set its \
              allocator up"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use gguf::line::Line;
use rustix::process::{Resource, getrlimit};

use crate::machine::AddressSpace;
use crate::{Failure, Result};

/// The system's allocator, which never comes back without memory. Every program has it as its global one.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: every call goes to the system's allocator with the caller's arguments, whose contract is the same, and what
// that returns is returned, but for null, with which the program ends. Nothing here allocates or unwinds.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        had(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        had(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        had(unsafe { System.realloc(ptr, layout, new_size) }, new_size)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

fn had(memory: *mut u8, n_bytes: usize) -> *mut u8 {
    if memory.is_null() {
        end(n_bytes)
    }
    memory
}

/// Ends the program, of which `n_bytes` were refused.
#[cold]
#[inline(never)]
fn end(n_bytes: usize) -> ! {
    static ENDING: AtomicBool = AtomicBool::new(false);
    // One line, whichever threads come here.
    if !ENDING.swap(true, Ordering::Relaxed) {
        let mut line = Line::default();
        describe(&mut line, n_bytes);
        // There is nobody to tell if that fails.
        let _ = rustix::io::write(rustix::stdio::stderr(), line.text());
        // SAFETY: it takes a number and does not come back. What `exit` would run first, other threads are still using.
        unsafe { libc::_exit(2) }
    }
    loop {
        std::thread::yield_now();
    }
}

/// Bytes of the line about memory at most.
const LINE: usize = 400;

/// What is said of `n_bytes` that were refused.
fn describe(line: &mut Line<LINE>, n_bytes: usize) {
    let _ = write!(
        line,
        "error: memory: the system has no {n_bytes} bytes more to give"
    );
    let _ = match getrlimit(Resource::As).current {
        Some(limit) => writeln!(
            line,
            "; the address space is limited to {} KiB (`ulimit -v`): raise that or ask for less (`--max-memory`, `-t`, a \
             shorter context)",
            limit / 1024
        ),
        None => writeln!(
            line,
            ": free some or ask for less (`--max-memory`, `-t`, a shorter context)"
        ),
    };
}

/// Bytes of the first thread's stack that are taken beforehand where the address space is limited.
const STACK: usize = 1 << 20;

/// Prepares a program that may take only so much address space: called once, before there are other threads.
///
/// # Errors
/// A limit that leaves no room for the stack.
pub(crate) fn prepare() -> Result<()> {
    let Some(space) = AddressSpace::now() else {
        return Ok(());
    };
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Blocks of this size are given back as soon as they are free.
        const LARGE: i32 = 128 << 10;
        // SAFETY: the calls take numbers. By default each thread would reserve 64 MiB of addresses for its small blocks,
        // and large ones would come to be kept.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
        }
    }
    if space.left() < 2 * STACK as u64 {
        return Err(Failure::Usage(format!(
            "address space (`ulimit -v`): the program needs a limit of {} KiB to begin, found {} KiB; raise it",
            (space.used + 2 * STACK as u64).div_ceil(1024),
            space.limit / 1024
        )));
    }
    grow_stack();
    Ok(())
}

/// Uses the stack once: it grows when it is used, and where addresses have run out by then, that is the end of the
/// program without a word.
#[inline(never)]
#[expect(clippy::large_stack_arrays, reason = "it is the stack that is to be used")]
fn grow_stack() {
    let room = [0_u8; STACK];
    std::hint::black_box(&room);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_of_bounded_length() {
        let mut line = Line::default();
        describe(&mut line, usize::MAX);
        let text = std::str::from_utf8(line.text()).expect("UTF-8");
        assert!(text.starts_with("error: memory: the system has no 18446744073709551615 bytes more"));
        assert!(text.ends_with("context)\n"), "{text}");
        assert_eq!(text.lines().count(), 1);
        assert!(text.len() < LINE);
    }

    #[test]
    fn memory_is_the_systems() {
        let mut bytes = vec![1_u8; 100];
        let layout = Layout::from_size_align(64, 16).expect("a layout");
        // SAFETY: the layout is not empty, the pointer is used within it and given back with its size.
        unsafe {
            let p = Allocator.alloc_zeroed(layout);
            p.copy_to_nonoverlapping(bytes.as_mut_ptr(), 64);
            let p = Allocator.realloc(p, layout, 128);
            Allocator.dealloc(p, Layout::from_size_align(128, 16).expect("a layout"));
        }
        assert!(bytes[..64].iter().all(|&b| b == 0) && bytes[64..].iter().all(|&b| b == 1));
    }
}
