//! Items that threads take one after the other.

use std::sync::Mutex;

use super::region::lock;
use super::{n_threads, run};

/// Rows that a thread takes at once in element-wise work, which is short.
pub const MIN_ROWS: usize = 8;

/// Calls `f` with every item, each on one thread. Threads take items in order, one at a time; an item should be work for
/// some microseconds. Nothing is allocated.
pub fn for_each<I>(items: I, f: impl Fn(I::Item) + Sync)
where
    I: Iterator + Send,
{
    grouped::<1, I>(items, f);
}

/// The same for items of short work, of which threads take [`MIN_ROWS`] at a time.
pub fn rows<I>(rows: I, f: impl Fn(I::Item) + Sync)
where
    I: Iterator + Send,
{
    grouped::<MIN_ROWS, I>(rows, f);
}

fn grouped<const N: usize, I>(items: I, f: impl Fn(I::Item) + Sync)
where
    I: Iterator + Send,
{
    let n_groups = items.size_hint().1.map_or(usize::MAX, |n| n.div_ceil(N));
    let n_tasks = n_threads().min(n_groups);
    if n_tasks <= 1 {
        return items.for_each(f);
    }
    // An iterator that has ended may begin again.
    let items = Mutex::new(items.fuse());
    run(n_tasks, |_| {
        loop {
            let mut group = [const { None }; N];
            let mut items = lock(&items);
            for slot in &mut group {
                *slot = items.next();
            }
            drop(items);
            if group[0].is_none() {
                break;
            }
            group.into_iter().flatten().for_each(&f);
        }
    });
}

/// Calls `f` with every item, and returns the failure of the first one that failed. Behind a failure no more items are
/// begun.
///
/// # Errors
/// Those of `f`.
pub fn try_for_each<I, E>(items: I, f: impl Fn(I::Item) -> Result<(), E> + Sync) -> Result<(), E>
where
    I: Iterator + Send,
    E: Send,
{
    let first: Mutex<Option<(usize, E)>> = Mutex::new(None);
    for_each(items.enumerate(), |(i, item)| {
        if lock(&first).as_ref().is_some_and(|(at, _)| *at < i) {
            return;
        }
        if let Err(e) = f(item) {
            let mut first = lock(&first);
            if first.as_ref().is_none_or(|(at, _)| i < *at) {
                *first = Some((i, e));
            }
        }
    });
    let first = first
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    first.map_or(Ok(()), |(_, e)| Err(e))
}

/// What `f` makes of each item, in their order.
pub fn map<I, R>(items: I, f: impl Fn(I::Item) -> R + Sync) -> Vec<R>
where
    I: ExactSizeIterator + Send,
    R: Send,
{
    let mut results: Vec<Option<R>> = (0..items.len()).map(|_| None).collect();
    for_each(results.iter_mut().zip(items), |(result, item)| {
        *result = Some(f(item));
    });
    let found = results.into_iter();
    found.map(|r| r.expect("every item was handed out")).collect()
}
