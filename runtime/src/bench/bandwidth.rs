//! How fast the machine's memory can be read.

use std::time::{Duration, Instant};

use memmap2::MmapMut;

use crate::pool;

/// Bytes of a piece that a thread reads at once.
const PIECE: usize = 1 << 20;
/// Bytes of a word, which are read at once.
const WORD: usize = size_of::<u64>();
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
    let buffer = buffer(n_bytes)?;
    let started = Instant::now();
    let mut rates = Vec::new();
    // The first pass is not counted.
    for pass in 0..=PASSES {
        let begun = Instant::now();
        let sums = pool::map(buffer.chunks(PIECE), sum);
        let sum: u64 = sums.into_iter().sum();
        let seconds = begun.elapsed().as_secs_f64();
        if std::hint::black_box(sum) != n_bytes / WORD as u64 {
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

/// Words of 1. The threads that read write them, once: memory that was never written has no pages of its own, and
/// belongs to no node.
fn buffer(n_bytes: u64) -> Option<MmapMut> {
    let mut buffer = MmapMut::map_anon(usize::try_from(n_bytes).ok()?).ok()?;
    pool::for_each(buffer.chunks_mut(PIECE), |piece| {
        piece.as_chunks_mut().0.fill(1_u64.to_ne_bytes());
    });
    Some(buffer)
}

/// Of words. Several sums, so that no addition waits for the one before it.
fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; 32];
    let (chunks, rest) = bytes.as_chunks::<WORD>().0.as_chunks::<32>();
    let number = |word: &[u8; WORD]| u64::from_ne_bytes(*word);
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(number(word));
        }
    }
    let rest = rest.iter().map(number);
    rest.chain(sums).fold(0, u64::wrapping_add)
}

/// Some times the largest cache, but no more than a quarter of what is free.
fn buffer_bytes() -> u64 {
    let wanted = largest_cache().saturating_mul(TIMES_CACHE);
    let n = wanted.clamp(*BYTES.start(), *BYTES.end());
    gguf_cli::available_memory()
        .map_or(n, |free| n.min(free / 4))
        .max(PIECE as u64)
        / WORD as u64
        * WORD as u64
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
    use crate::pool::{Pool, PoolOptions};

    #[test]
    fn every_word_is_read() {
        let bytes: Vec<u8> = (0..100_u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(sum(&bytes), 4950);
        assert_eq!(sum(&[]), 0);
        let pool = Pool::new(&PoolOptions::threads(2)).expect("threads");
        // Whole pieces, and some words more.
        let n = PIECE * 3 + 40 * WORD;
        let buffer = pool.enter(|| buffer(n as u64)).expect("memory");
        assert_eq!((buffer.len(), sum(&buffer)), (n, (n / WORD) as u64));
        let n = buffer_bytes();
        assert!(n >= 1 << 20 && n <= *BYTES.end() && n.is_multiple_of(8), "{n}");
    }
}
