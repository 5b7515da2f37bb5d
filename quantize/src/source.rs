//! Which source a run reads: cheap marks that tell a changed file, and the digest that goes into the output.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use gguf::digest::Digest;
use gguf::{GgufFile, Part};
use gguf_cli::Result;
use sha2::{Digest as _, Sha256};

/// Bytes of a read.
const PIECE: u64 = 1 << 20;
/// Bytes that the digest may be ahead of the encoders: little enough to be in the page cache still when they come, so
/// that the disk is read once.
const AHEAD: u64 = 512 << 20;
/// Time to wait for the encoders.
const WAIT: Duration = Duration::from_millis(20);

/// Length, time of change and head of each file, for the digest of a plan.
pub(crate) fn marks(file: &GgufFile) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for part in file.parts() {
        let changed = part.path().metadata().and_then(|m| m.modified()).ok();
        let changed = changed.and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        out.extend(part.source().len().to_le_bytes());
        out.extend(changed.map_or(0, |t| t.as_nanos()).to_le_bytes());
        out.extend(digest(part, 0..part.data_offset, &Pace::free())?.0);
    }
    Ok(out)
}

/// How far the encoders are.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    read: AtomicU64,
    free: AtomicBool,
    stopped: AtomicBool,
}

impl Pace {
    fn free() -> Self {
        Self {
            free: AtomicBool::new(true),
            ..Self::default()
        }
    }

    /// Adds bytes that the encoders have read.
    pub(crate) fn add(&self, n: u64) {
        self.read.fetch_add(n, Ordering::Relaxed);
    }

    /// The encoders are through, or were not at work.
    pub(crate) fn release(&self) {
        self.free.store(true, Ordering::Relaxed);
    }

    /// The digest is not wanted any more.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Waits until `at` is not too far ahead.
    fn wait(&self, at: u64) {
        while !self.free.load(Ordering::Relaxed)
            && !self.stopped.load(Ordering::Relaxed)
            && at > self.read.load(Ordering::Relaxed) + AHEAD
        {
            std::thread::sleep(WAIT);
        }
    }
}

/// The SHA-256 of each file of a model, read in step with the encoders; nothing if it was stopped.
pub(crate) fn digests(file: &GgufFile, pace: &Pace) -> Result<Vec<Digest>> {
    let mut before = 0;
    let mut out = Vec::new();
    for part in file.parts() {
        let n = part.source().len();
        pace.wait(before);
        out.push(digest_paced(part, 0..n, before, pace)?);
        before += n;
    }
    Ok(out)
}

fn digest(part: &Part, range: std::ops::Range<u64>, pace: &Pace) -> Result<Digest> {
    digest_paced(part, range, 0, pace)
}

/// `before` is the number of bytes in the files in front of this one.
fn digest_paced(part: &Part, range: std::ops::Range<u64>, before: u64, pace: &Pace) -> Result<Digest> {
    let mut sha = Sha256::new();
    let mut piece = Vec::new();
    let mut at = range.start;
    while at < range.end && !pace.stopped.load(Ordering::Relaxed) {
        pace.wait(before + at);
        let n = (range.end - at).min(PIECE);
        piece.resize(n as usize, 0);
        part.source().read_at(at, &mut piece)?;
        sha.update(&piece);
        at += n;
    }
    Ok(Digest(sha.finalize().into()))
}
