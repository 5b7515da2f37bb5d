//! What becomes of a program whose files fail under it in a way that only signals tell.
//!
//! A read of a mapped page that is not there any more, because the file was shortened or the disk has an error, is no
//! error of a call: the system sends `SIGBUS`, which ends a process as a crash. A write beyond the largest file that a
//! process may write sends `SIGXFSZ`, which does the same. A program calls [`install`] as it starts: then the first is
//! a line `error: ..` that names the file, and exit 1, whichever thread met it; the second is the error of the write.
//! Any other `SIGBUS` does what it did before.
//!
//! Signals belong to a process, so a library does not touch them: a program that embeds this crate and maps files
//! ([`crate::source::map`]) either calls [`install`] too, or a file that is shortened meanwhile ends it.
//!
//! Each mapping is listed here while it lives ([`Mapping`]), in a form that a signal handler may read: only atomic
//! loads, nothing that allocates, locks or is freed.

#![expect(unsafe_code, reason = "signals can only be handled by unsafe calls")]

use std::fs::File;
use std::io::IsTerminal as _;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::line::Line;

/// Bytes of a file's name that are shown; of a longer one the end.
const NAME_BYTES: usize = 1024;

/// A mapping as the handler sees it. Slots are never freed, those of mappings that are gone are used again.
#[derive(Debug)]
struct Slot {
    /// First address; 0 in a slot that is free.
    start: AtomicUsize,
    /// Bytes, also of the file when it was mapped.
    len: AtomicUsize,
    file: AtomicI32,
    name: [AtomicU8; NAME_BYTES],
    name_len: AtomicUsize,
    next: OnceLock<&'static Slot>,
}

/// The list of slots. It is read by atomic loads alone: `OnceLock::get` takes no lock.
static FIRST: OnceLock<&'static Slot> = OnceLock::new();
/// Held while a slot is filled or freed.
static WRITING: Mutex<()> = Mutex::new(());

/// What was done on `SIGBUS` before [`install`].
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// Whether talk goes to a terminal, on which a progress bar may stand.
static ON_TERMINAL: AtomicBool = AtomicBool::new(false);
/// Whether a thread has begun to report.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// A mapping that is on the list until this is dropped, which must be before it is unmapped and its file closed.
#[derive(Debug)]
pub(crate) struct Mapping(&'static Slot);

impl Mapping {
    /// Lists the bytes that a file is mapped to.
    pub(crate) fn new(bytes: &[u8], file: &File, path: &Path) -> Self {
        let name: String = path
            .to_string_lossy()
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        let name = &name.as_bytes()[name.ceil_char_boundary(name.len().saturating_sub(NAME_BYTES))..];
        // A thread that panicked in here left a slot that is free.
        let _writing = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let slot = free_slot();
        for (to, from) in slot.name.iter().zip(name) {
            to.store(*from, Ordering::Relaxed);
        }
        slot.name_len.store(name.len(), Ordering::Relaxed);
        slot.len.store(bytes.len(), Ordering::Relaxed);
        slot.file.store(file.as_raw_fd(), Ordering::Relaxed);
        slot.start.store(bytes.as_ptr().addr(), Ordering::Release);
        Self(slot)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _writing = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.0.start.store(0, Ordering::Release);
    }
}

/// All slots, by loads alone.
fn slots() -> impl Iterator<Item = &'static Slot> {
    std::iter::successors(FIRST.get().copied(), |slot| slot.next.get().copied())
}

/// A slot that nothing is in, a new one at the end where there is none. The caller holds [`WRITING`].
fn free_slot() -> &'static Slot {
    if let Some(slot) = slots().find(|s| s.start.load(Ordering::Relaxed) == 0) {
        return slot;
    }
    let slot: &'static Slot = Box::leak(Box::new(Slot {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        file: AtomicI32::new(-1),
        name: [const { AtomicU8::new(0) }; NAME_BYTES],
        name_len: AtomicUsize::new(0),
        next: OnceLock::new(),
    }));
    let end = slots().last().map_or(&FIRST, |last| &last.next);
    end.get_or_init(|| slot)
}

/// The mapping that an address lies in. The bytes of its last page behind the end of the file are its own too.
fn mapping_at(address: usize) -> Option<&'static Slot> {
    slots().find(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && address >= start && address - start < slot.len.load(Ordering::Relaxed)
    })
}

/// Has this process report a mapped file that cannot be read any more as an error that names it, with exit 1, and get
/// an error where it writes beyond its limit for files. For programs, as they start; a second call does nothing.
pub fn install() {
    ON_TERMINAL.store(std::io::stderr().is_terminal(), Ordering::Relaxed);
    // SAFETY: `SIG_IGN` is no code of ours, and all zeros is a `sigaction` of no flags. `on_bus_error` is a handler of
    // three arguments, as `SA_SIGINFO` says, and calls what may be called in one only. It runs on the stack that the
    // standard library has set up for its own handler, where a thread has one (`SA_ONSTACK`); it needs 2 KiB. What was
    // there before is known (`BEFORE`) before the handler can run.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0
            || BEFORE.set(before).is_err()
        {
            return;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as extern "C" fn(_, _, _) as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// Runs in the thread that met the fault, in the middle of whatever it did. Everything here is safe in a signal
/// handler: atomic loads, and the calls `fstat`, `write`, `_exit`, `pause`, `sigaction`, `signal` and `raise`, which
/// POSIX lists as such. Nothing allocates, locks or panics.
extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system passes a valid `siginfo_t` to a handler with `SA_SIGINFO`; that of a `SIGBUS` of its own
    // (`si_code` above 0) has an address.
    let address = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr().addr()) };
    if let Some((address, slot)) = address.and_then(|a| Some((a, mapping_at(a)?))) {
        // The thread reads a mapping, so that lives, and its slot is that of nothing else.
        if REPORTED.swap(true, Ordering::Relaxed) {
            // Another thread ends the process.
            loop {
                // SAFETY: a call without arguments.
                unsafe { libc::pause() };
            }
        }
        slot.report(address);
        // SAFETY: ends the process at once; buffers of outputs are of no use without the rest.
        unsafe { libc::_exit(1) };
    }
    // SAFETY: `before` came from the system. A fault of the system's comes again when this returns, and meets what was
    // there before, as if this had not been; a signal that somebody sent does not, and is sent again.
    unsafe {
        if let (Some(_), Some(before)) = (address, BEFORE.get()) {
            libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut());
        } else {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
            libc::raise(libc::SIGBUS);
        }
    }
}

impl Slot {
    /// Writes the line about a read at an address to stderr.
    fn report(&self, address: usize) {
        let len = self.len.load(Ordering::Relaxed);
        let at = address.saturating_sub(self.start.load(Ordering::Relaxed));
        let mut line = Line::<{ NAME_BYTES + 256 }>::default();
        if ON_TERMINAL.load(Ordering::Relaxed) {
            // Over a progress bar.
            line.push(b"\r\x1b[K");
        }
        line.push(b"error: `");
        let name = self.name.iter().take(self.name_len.load(Ordering::Relaxed));
        name.for_each(|byte| line.push(&[byte.load(Ordering::Relaxed)]));
        line.push(b"` at byte ");
        line.number(at);
        match self.bytes_now() {
            Some(now) if now < len => {
                line.push(b": the file was shortened while it was in use: it had ");
                line.number(len);
                line.push(b" bytes, now ");
                line.number(now);
                line.push(b"; start again when nothing writes to it\n");
            }
            _ => line.push(b": the file cannot be read any more: check the disk\n"),
        }
        // SAFETY: the bytes are the line's. There is nobody to tell if this fails.
        unsafe {
            libc::write(
                libc::STDERR_FILENO,
                line.text().as_ptr().cast(),
                line.text().len(),
            )
        };
    }

    /// Bytes that the file has now.
    fn bytes_now(&self) -> Option<usize> {
        let file = self.file.load(Ordering::Relaxed);
        // SAFETY: the mapping lives, and its file is open as long as it is listed. Nothing of this is kept.
        let file = (file >= 0).then(|| unsafe { BorrowedFd::borrow_raw(file) })?;
        usize::try_from(rustix::fs::fstat(file).ok()?.st_size).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_found_by_address_while_they_live() {
        let file = tempfile::tempfile().expect("a file");
        let (bytes, others) = (vec![0; 100], vec![0; 50]);
        let at = bytes.as_ptr().addr();
        let list = |bytes: &[u8]| Mapping::new(bytes, &file, Path::new("a/name\n"));
        let (one, two) = (list(&bytes), list(&others));
        let slot = mapping_at(at).expect("listed");
        let name: Vec<u8> = slot.name.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        assert_eq!(&name[..slot.name_len.load(Ordering::Relaxed)], b"a/name?");
        assert!(mapping_at(at + 99).is_some_and(|s| std::ptr::eq(s, slot)));
        assert!(mapping_at(at + 100).is_none_or(|s| !std::ptr::eq(s, slot)));
        assert_eq!(slot.bytes_now(), Some(0));
        drop(one);
        assert!(mapping_at(at).is_none());
        assert!(mapping_at(others.as_ptr().addr()).is_some());
        drop(two);
    }

    #[test]
    fn of_a_long_name_the_end_is_kept() {
        let file = tempfile::tempfile().expect("a file");
        let bytes = vec![0; 10];
        let long = "ä".repeat(700);
        let _mapping = Mapping::new(&bytes, &file, Path::new(&long));
        let slot = mapping_at(bytes.as_ptr().addr()).expect("listed");
        assert_eq!(slot.name_len.load(Ordering::Relaxed), NAME_BYTES);
    }
}
