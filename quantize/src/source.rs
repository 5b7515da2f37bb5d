//! Which source a run reads: cheap marks that tell a changed file, and the digest that goes into the output.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use gguf::digest::{self, Digest};
use gguf::{Array, GgufFile, Part, Value};

/// Metadata key of the SHA-256 of the source's file, or the list of those of its shards.
pub(crate) const SHA256: &str = "quantize.source.sha256";

/// The value of [`SHA256`]. Any digests make one of the same size.
pub(crate) fn value(digests: &[Digest]) -> Value {
    match digests {
        [one] => one.to_string().into(),
        all => Value::Array(Array::String(all.iter().map(Digest::to_string).collect())),
    }
}

/// What stands for the digests until they are known.
pub(crate) fn placeholder(file: &GgufFile) -> Value {
    value(&vec![Digest([0; 32]); file.parts().len()])
}

/// Bytes that the digest may be ahead of the encoders: little enough to be in the page cache still when they come, so
/// that the disk is read once.
const AHEAD: u64 = 512 << 20;
/// Time to wait for the encoders.
const WAIT: Duration = Duration::from_millis(20);

/// Length, time of change and head of each file, and of those that it is computed from, for the digest of a plan.
pub(crate) fn marks(file: &GgufFile) -> gguf::Result<Vec<u8>> {
    let mut out = Vec::new();
    for part in file.parts() {
        for path in part.source().inputs() {
            let meta = path.metadata().ok();
            let changed = meta.as_ref().and_then(|m| m.modified().ok());
            let changed = changed.and_then(|t| t.duration_since(UNIX_EPOCH).ok());
            out.extend(meta.map_or(0, |m| m.len()).to_le_bytes());
            out.extend(changed.map_or(0, |t| t.as_nanos()).to_le_bytes());
        }
        out.extend(part.source().len().to_le_bytes());
        let head = digest::of_source(part.source(), 0..part.data_offset, &mut |_| Ok(()))?;
        out.extend(head.0);
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
    /// Adds bytes that the encoders have read.
    pub(crate) fn add(&self, n: u64) {
        self.read.fetch_add(n, Ordering::Relaxed);
    }

    /// Ends the digest when the guard is dropped, also by a panic: nobody waits for it then.
    pub(crate) fn stop_at_end(&self) -> Stop<'_> {
        Stop(self)
    }

    /// Waits until byte `at` is not too far ahead.
    fn wait(&self, at: u64) -> gguf::Result<()> {
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return Err(gguf::Error::Output("the digest of the source was stopped".into()));
            }
            let is_near = at <= self.read.load(Ordering::Relaxed) + AHEAD;
            if is_near || self.free.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(WAIT);
        }
    }
}

/// Stops the digest when dropped.
pub(crate) struct Stop<'a>(&'a Pace);

impl Stop<'_> {
    /// The encoders are through: the digest is wanted and need not keep step.
    pub(crate) fn release(self) {
        self.0.free.store(true, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

/// The SHA-256 of each file of a model, read in step with the encoders.
///
/// # Errors
/// A failed read; that it was stopped.
pub(crate) fn digests(file: &GgufFile, pace: &Pace) -> gguf::Result<Vec<Digest>> {
    let mut at = 0;
    let one = |part: &Part| {
        let source = part.source();
        digest::of_source(source, 0..source.len(), &mut |n| {
            at += n;
            pace.wait(at)
        })
    };
    file.parts().iter().map(one).collect()
}
