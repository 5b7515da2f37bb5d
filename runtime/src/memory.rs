//! Disjoint parts of a row-major matrix, for tasks that write into it at the same time; huge pages.

#![expect(
    unsafe_code,
    reason = "parts that share rows cannot be expressed as slices; a call about ranges of memory"
)]

use std::marker::PhantomData;

/// An exclusive borrow of a rectangle of a row-major f32 matrix.
#[derive(Debug)]
pub(crate) struct GridMut<'a> {
    /// The rectangle's first element.
    start: *mut f32,
    /// Elements from one row to the next.
    stride: usize,
    n_rows: usize,
    n_cols: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: a grid is an exclusive borrow of its rectangle, as `&mut [f32]` is of its elements: all ways to make
// one consume or split the borrow, and the elements are `Send`.
unsafe impl Send for GridMut<'_> {}

impl<'a> GridMut<'a> {
    /// All of `data`, in rows of `n_cols` elements.
    pub(crate) fn new(data: &'a mut [f32], n_cols: usize) -> Self {
        let n_rows = data.len().checked_div(n_cols).unwrap_or(0);
        assert_eq!(n_rows * n_cols, data.len(), "a matrix is whole rows");
        Self {
            start: data.as_mut_ptr(),
            stride: n_cols,
            n_rows,
            n_cols,
            matrix: PhantomData,
        }
    }

    #[cfg(test)]
    pub(crate) fn n_rows(&self) -> usize {
        self.n_rows
    }

    pub(crate) fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// The first `at` rows and the others.
    pub(crate) fn split_rows(self, at: usize) -> (Self, Self) {
        assert!(at <= self.n_rows, "a split lies inside");
        // Without rows nothing is ever read, and the offset could leave the matrix.
        let offset = if at < self.n_rows { at * self.stride } else { 0 };
        // SAFETY: row `at` exists if the offset is not 0, so the pointer stays inside the matrix.
        let start = unsafe { self.start.add(offset) };
        (
            Self { n_rows: at, ..self },
            Self {
                start,
                n_rows: self.n_rows - at,
                ..self
            },
        )
    }

    /// The first `at` columns and the others.
    pub(crate) fn split_cols(self, at: usize) -> (Self, Self) {
        assert!(at <= self.n_cols, "a split lies inside");
        let offset = if at < self.n_cols && self.n_rows > 0 {
            at
        } else {
            0
        };
        // SAFETY: column `at` exists if the offset is not 0, so the pointer stays inside the first row.
        let start = unsafe { self.start.add(offset) };
        (
            Self { n_cols: at, ..self },
            Self {
                start,
                n_cols: self.n_cols - at,
                ..self
            },
        )
    }

    /// The part of row `row` that lies in the rectangle.
    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.n_rows, "a row lies inside");
        // SAFETY: the row is inside the matrix, splits never share an element, and the result borrows `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.n_cols) }
    }
}

/// Whether the system would give this many bytes at once. They are asked for and given back, untouched.
pub(crate) fn can_be_had(n_bytes: u64) -> bool {
    let n = usize::try_from(n_bytes);
    n.is_ok_and(|n| n == 0 || memmap2::MmapMut::map_anon(n).is_ok())
}

/// Bytes of a huge page: less memory cannot be in one.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Asks the system to have memory in huge pages. It need not, and nothing but speed tells.
pub(crate) fn ask_for_huge_pages<T>(memory: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};

        // Whole pages of this memory alone.
        let page = rustix::param::page_size();
        let start = memory.as_mut_ptr().cast::<u8>();
        let skipped = start.align_offset(page);
        let n = size_of_val(memory).saturating_sub(skipped) / page * page;
        if n < HUGE_PAGE {
            return;
        }
        // SAFETY: the pages lie inside `memory`, and the advice changes neither what they hold nor who may access them.
        let asked = unsafe { madvise(start.wrapping_add(skipped).cast(), n, Advice::LinuxHugepage) };
        // Systems without huge pages refuse.
        let _ = asked;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_matrix_once() {
        let mut data = vec![0.0; 5 * 7];
        let (top, bottom) = GridMut::new(&mut data, 7).split_rows(2);
        let (left, right) = bottom.split_cols(3);
        let (right, none) = right.split_cols(4);
        assert_eq!((none.n_rows(), none.n_cols()), (3, 0));
        std::thread::scope(|s| {
            for (mark, mut part) in [top, left, right].into_iter().enumerate() {
                s.spawn(move || {
                    for r in 0..part.n_rows() {
                        part.row_mut(r).iter_mut().for_each(|v| *v += 1.0 + mark as f32);
                    }
                });
            }
        });
        for (i, v) in data.into_iter().enumerate() {
            let expected = if i / 7 < 2 {
                1.0
            } else if i % 7 < 3 {
                2.0
            } else {
                3.0
            };
            assert_eq!(v, expected, "element {i}");
        }
    }

    #[test]
    fn memory_that_nobody_has_cannot_be_had() {
        assert!(can_be_had(0) && can_be_had(1 << 20));
        assert!(!can_be_had(1 << 60) && !can_be_had(u64::MAX));
    }

    #[test]
    fn empty_matrices_have_no_rows() {
        assert_eq!(GridMut::new(&mut [], 0).n_rows(), 0);
        let (a, b) = GridMut::new(&mut [], 4).split_rows(0);
        assert_eq!((a.n_rows(), b.n_rows()), (0, 0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn huge_pages_are_asked_for_inside_the_memory_alone() {
        let mut memory = vec![7_u32; 2 << 20];
        ask_for_huge_pages(&mut memory[..]);
        ask_for_huge_pages(&mut memory[..1]);
        ask_for_huge_pages(&mut memory[..0]);
        assert!(memory.iter().all(|&v| v == 7));
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux tells of mappings");
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() || !maps.contains("VmFlags")
        {
            crate::skip::skip("this kernel has no huge pages, or does not tell");
            return;
        }
        // Flags of the mapping that an address lies in.
        let flags = |address: usize| {
            let mut inside = false;
            maps.lines().find(|line| {
                let range = line.split(' ').next().and_then(|range| range.split_once('-'));
                let number = |text| usize::from_str_radix(text, 16).ok();
                if let Some((start, end)) = range.and_then(|(a, b)| number(a).zip(number(b))) {
                    inside = (start..end).contains(&address);
                }
                inside && line.starts_with("VmFlags")
            })
        };
        let middle = std::ptr::from_ref(&memory[memory.len() / 2]).addr();
        let flags = flags(middle).expect("the memory is mapped");
        assert!(flags.split(' ').any(|flag| flag == "hg"), "{flags}");
    }
}
