//! Which rows are next, and up to which all are done.

use std::collections::BTreeMap;
use std::ops::Range;

/// Rows of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    /// The tensor, as an index of the steps.
    pub(super) step: usize,
    /// Counted over all matrices of the tensor.
    pub(super) rows: Range<u64>,
    /// The same rows counted over all tensors, with those in front of them for which there is nothing to do.
    pub(super) span: Range<u64>,
}

/// The rows of one tensor, for the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// Rows of the tensor, counted over its matrices.
    pub(super) n_rows: u64,
    /// Rows of a task; 0 where there is nothing to do.
    pub(super) per_task: u64,
}

/// Hands out tasks in the order of the tensors.
#[derive(Debug)]
pub(super) struct Queue {
    stretches: Vec<Stretch>,
    step: usize,
    row: u64,
    /// The next row, counted over all tensors.
    at: u64,
}

impl Queue {
    /// Starts behind the first `done` rows.
    pub(super) fn new(stretches: Vec<Stretch>, done: u64) -> Self {
        let (mut step, mut row) = (0, done);
        while let Some(s) = stretches.get(step)
            && row >= s.n_rows
        {
            row -= s.n_rows;
            step += 1;
        }
        Self {
            stretches,
            step,
            row,
            at: done,
        }
    }

    pub(super) fn next(&mut self) -> Option<Task> {
        let start = self.at;
        loop {
            let stretch = *self.stretches.get(self.step)?;
            let left = stretch.n_rows - self.row;
            if left == 0 || stretch.per_task == 0 {
                self.at += left;
                self.step += 1;
                self.row = 0;
                continue;
            }
            let n = left.min(stretch.per_task);
            let rows = self.row..self.row + n;
            self.row += n;
            self.at += n;
            return Some(Task {
                step: self.step,
                rows,
                span: start..self.at,
            });
        }
    }
}

/// The rows up to which everything is done, while tasks end in any order.
#[derive(Debug)]
pub(super) struct Done {
    up_to: u64,
    /// Rows done behind a gap: first row and end.
    ahead: BTreeMap<u64, u64>,
}

impl Done {
    pub(super) fn new(up_to: u64) -> Self {
        let ahead = BTreeMap::new();
        Self { up_to, ahead }
    }

    pub(super) fn up_to(&self) -> u64 {
        self.up_to
    }

    pub(super) fn add(&mut self, rows: Range<u64>) {
        self.ahead.insert(rows.start, rows.end);
        while let Some((&start, &end)) = self.ahead.first_key_value()
            && start <= self.up_to
        {
            self.up_to = self.up_to.max(end);
            self.ahead.remove(&start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(n_rows: u64, per_task: u64) -> Stretch {
        Stretch { n_rows, per_task }
    }

    fn tasks(done: u64) -> Vec<(usize, Range<u64>, Range<u64>)> {
        let all = vec![stretch(5, 2), stretch(3, 0), stretch(0, 1), stretch(4, 4)];
        let mut queue = Queue::new(all, done);
        std::iter::from_fn(|| queue.next())
            .map(|t| (t.step, t.rows, t.span))
            .collect()
    }

    #[test]
    fn tasks_cover_the_rows_that_are_left() {
        let last = |rows: Range<u64>, span: Range<u64>| (3, rows, span);
        assert_eq!(
            tasks(0),
            [
                (0, 0..2, 0..2),
                (0, 2..4, 2..4),
                (0, 4..5, 4..5),
                last(0..4, 5..12)
            ]
        );
        assert_eq!(tasks(3), [(0, 3..5, 3..5), last(0..4, 5..12)]);
        assert_eq!(tasks(6), [last(0..4, 6..12)]);
        assert_eq!(tasks(9), [last(1..4, 9..12)]);
        assert_eq!(tasks(12), []);
    }

    #[test]
    fn rows_count_as_done_without_a_gap() {
        let mut done = Done::new(2);
        done.add(4..6);
        assert_eq!(done.up_to(), 2);
        done.add(6..7);
        done.add(2..4);
        assert_eq!(done.up_to(), 7);
    }
}
