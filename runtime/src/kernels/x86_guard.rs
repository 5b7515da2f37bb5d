//! Memory between pages that nobody may touch, for tests of what reads and writes by pointer.

#![expect(unsafe_code, reason = "protected pages and slices of them")]

use std::ffi::c_void;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE: usize = 4096;

/// Elements that lie right behind a protected page, or right in front of one.
pub(super) struct Guarded<T> {
    map: *mut c_void,
    n_bytes: usize,
    first: *mut T,
    n: usize,
}

impl<T: Copy> Guarded<T> {
    /// A copy of `data`, which any bits are valid for.
    pub(super) fn new(data: &[T], at_end: bool) -> Self {
        let inner = size_of_val(data).next_multiple_of(PAGE);
        let n_bytes = inner + 2 * PAGE;
        // SAFETY: a new mapping; its first and last page, which nothing refers to, are then protected. The elements lie
        // between them: at a page's start, or so that they end with a page.
        unsafe {
            let flags = ProtFlags::READ | ProtFlags::WRITE;
            let map = mmap_anonymous(std::ptr::null_mut(), n_bytes, flags, MapFlags::PRIVATE)
                .expect("there is memory");
            for page in [map, map.byte_add(PAGE + inner)] {
                mprotect(page, PAGE, MprotectFlags::empty()).expect("pages can be protected");
            }
            let skipped = if at_end { inner - size_of_val(data) } else { 0 };
            let first: *mut T = map.byte_add(PAGE + skipped).cast();
            assert!(first.is_aligned(), "pages hold whole elements");
            std::ptr::copy_nonoverlapping(data.as_ptr(), first, data.len());
            Self {
                map,
                n_bytes,
                first,
                n: data.len(),
            }
        }
    }

    pub(super) fn slice(&self) -> &[T] {
        // SAFETY: the elements were copied there, and the mapping lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.first, self.n) }
    }

    pub(super) fn slice_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.n) }
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nothing borrows from it any more.
        unsafe { munmap(self.map, self.n_bytes).expect("a mapping can be taken away") }
    }
}
