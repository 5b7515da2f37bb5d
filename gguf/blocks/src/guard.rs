//! Memory between pages that nobody may touch, for tests of what reads and writes by pointer; those of `gguf-runtime`
//! use this file, too.

#![expect(unsafe_code, reason = "protected pages and slices of them")]

use std::ffi::c_void;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::param::page_size;

/// Elements that lie right behind a protected page, or right in front of one.
pub(crate) struct Guarded<T> {
    map: *mut c_void,
    n_bytes: usize,
    first: *mut T,
    n: usize,
}

impl<T: Clone> Guarded<T> {
    /// A copy of `data`, `shift` bytes away from the page; as many as the alignment of `T` allows. Elements are never
    /// dropped.
    pub(crate) fn new(data: &[T], at_end: bool, shift: usize) -> Self {
        let page = page_size();
        let size = size_of_val(data);
        let shift = shift / align_of::<T>() * align_of::<T>();
        let inner = (size + shift).next_multiple_of(page);
        let n_bytes = inner + 2 * page;
        // SAFETY: a new mapping; its first and last page, which nothing refers to, are then protected. The elements lie
        // between them, from `page + skipped` on: `skipped + size <= inner`. They are aligned, as is asserted.
        unsafe {
            let flags = ProtFlags::READ | ProtFlags::WRITE;
            let map = mmap_anonymous(std::ptr::null_mut(), n_bytes, flags, MapFlags::PRIVATE)
                .expect("there is memory");
            for guard in [map, map.byte_add(page + inner)] {
                mprotect(guard, page, MprotectFlags::empty()).expect("pages can be protected");
            }
            let skipped = if at_end { inner - size - shift } else { shift };
            let first: *mut T = map.byte_add(page + skipped).cast();
            assert!(first.is_aligned(), "pages hold whole elements");
            for (i, element) in data.iter().enumerate() {
                first.add(i).write(element.clone());
            }
            Self {
                map,
                n_bytes,
                first,
                n: data.len(),
            }
        }
    }

    pub(crate) fn slice(&self) -> &[T] {
        // SAFETY: the elements were written there, and the mapping lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.first, self.n) }
    }

    pub(crate) fn slice_mut(&mut self) -> &mut [T] {
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
