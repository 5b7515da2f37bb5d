//! How fast the machine's memory can be read.

use crate::pool;
use std::time::{Duration, Instant};

/// Words of a piece that a thread reads at once, 1 MiB.
const PIECE: usize = 1 << 17;
/// Bytes that are read at least, and at most.
const BYTES: std::ops::RangeInclusive<u64> = 256 << 20..=1 << 30;
/// The buffer is this many times as large as the largest cache.
const TIMES_CACHE: u64 = 4;
/// Passes that are timed, and the time after which no more are begun.
const PASSES: usize = 12;
const ENOUGH: Duration = Duration::from_millis(1500);

/// Bytes a second that some threads read from memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bandwidth {
    pub(super) n_threads: usize,
    /// Of the best pass: what the machine can do.
    pub(super) best: f64,
    pub(super) median: f64,
    pub(super) n_passes: usize,
    /// Bytes of a pass.
    pub(super) n_bytes: u64,
}

/// Measures on the threads of the pool that it is called in; `None` where there is no memory for the buffer.
pub(super) fn measure() -> Option<Bandwidth> {
    let n_bytes = buffer_bytes();
    let n_words = usize::try_from(n_bytes / 8).ok()?;
    let mut words: Vec<u64> = Vec::new();
    words.try_reserve_exact(n_words).ok()?;
    // Written by the threads that read: memory that was never written has no pages of its own, and belongs to no node.
    let fresh = &mut words.spare_capacity_mut()[..n_words];
    pool::for_each(fresh.chunks_mut(PIECE), |piece| {
        for word in piece {
            word.write(1);
        }
    });
    // Vectors are made long only by writing.
    words.resize(n_words, 1);
    let started = Instant::now();
    let mut rates = Vec::new();
    // The first pass is not counted.
    for pass in 0..=PASSES {
        let begun = Instant::now();
        let sums = pool::map(words.chunks(PIECE), sum);
        let sum: u64 = sums.into_iter().sum();
        let seconds = begun.elapsed().as_secs_f64();
        if std::hint::black_box(sum) != n_words as u64 {
            return None;
        }
        if pass > 0 {
            rates.push(n_bytes as f64 / seconds.max(1e-9));
        }
        if pass > 2 && started.elapsed() > ENOUGH {
            break;
        }
    }
    let summary = super::stats::Summary::of(&rates);
    Some(Bandwidth {
        n_threads: pool::n_threads(),
        best: summary.max,
        median: summary.median,
        n_passes: rates.len(),
        n_bytes,
    })
}

/// Several sums, so that no addition waits for the one before it.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; 32];
    let (chunks, rest) = words.as_chunks::<32>();
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    rest.iter().chain(&sums).fold(0, |sum, &n| sum.wrapping_add(n))
}

/// Some times the largest cache, but no more than a quarter of what is free.
fn buffer_bytes() -> u64 {
    let wanted = largest_cache().saturating_mul(TIMES_CACHE);
    let n = wanted.clamp(*BYTES.start(), *BYTES.end());
    gguf_cli::available_memory()
        .map_or(n, |free| n.min(free / 4))
        .max(PIECE as u64 * 8)
        / 8
        * 8
}

fn largest_cache() -> u64 {
    let Ok(caches) = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache") else {
        return 0;
    };
    let size = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("size")).ok()?;
        gguf_cli::parse_size(text.trim()).ok()
    };
    caches.flatten().filter_map(size).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        let words: Vec<u64> = (0..100).collect();
        assert_eq!(sum(&words), 4950);
        assert_eq!(sum(&[]), 0);
        let n = buffer_bytes();
        assert!(n >= 1 << 20 && n <= *BYTES.end() && n.is_multiple_of(8), "{n}");
    }
}
