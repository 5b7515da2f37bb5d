//! The digests of a model's files and tensors.
//!
//! A SHA-256 is one chain from the first byte to the last, so a file's cannot be split among threads. With the files'
//! digests wanted, a reader hands each chunk to two threads, one for the file's chain and one for that of the tensor it
//! belongs to: each byte is read once, and several files of a split set go side by side where there are threads. With
//! the tensors' alone, each thread takes a tensor.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use gguf::digest::Digest;
use gguf::{GgufFile, Part};
use gguf_cli::{Failure, Progress, Result, Unit, spawn_scoped};
use rayon::ThreadPool;
use serde::Serializer;
use sha2::{Digest as _, Sha256};

use crate::walk::{Buffers, in_order, sound_tensors};

/// Bytes of a read.
const CHUNK: usize = 512 << 10;
/// Bytes in flight for all files that are read at the same time.
const IN_FLIGHT: usize = 64 << 20;
/// Most chunks in flight for a file.
const MAX_CHUNKS: usize = 32;

/// For JSON, a digest as its digits.
pub(super) fn as_text<S: Serializer>(digest: &Digest, s: S) -> std::result::Result<S::Ok, S::Error> {
    s.collect_str(digest)
}

/// What was computed of a model.
#[derive(Debug)]
pub(super) struct Digests {
    /// Of each file as a whole, where that was wanted.
    pub(super) files: Option<Vec<Digest>>,
    /// Of each tensor's bytes; `None` where they are not all in the file or are also another tensor's.
    pub(super) tensors: Vec<Option<Digest>>,
}

/// Refuses a model of which some tensors have no digest.
pub(super) fn require_all(file: &GgufFile, digests: &Digests) -> Result<()> {
    let bad = file
        .tensors
        .iter()
        .zip(&digests.tensors)
        .find(|(_, d)| d.is_none());
    match bad {
        None => Ok(()),
        Some((tensor, _)) => Err(Failure::Input(format!(
            "`{}` at byte {}: tensor `{}` runs beyond the end of the file or into another tensor; see `gguf-inspect \
             check`",
            file.part(tensor).path().display(),
            file.tensor_range(tensor).start,
            tensor.name
        ))),
    }
}

/// Reads the model once and computes its digests.
pub(super) fn compute(file: &GgufFile, whole_files: bool, pool: &ThreadPool, quiet: bool) -> Result<Digests> {
    let order = sound_tensors(file);
    if !whole_files {
        let tensors = tensors_alone(file, &order, pool, quiet)?;
        return Ok(Digests { files: None, tensors });
    }
    let progress = Progress::new("hash", file.n_bytes(), Unit::Bytes, quiet);
    let done = Done {
        files: Mutex::new(vec![None; file.parts().len()]),
        tensors: Mutex::new(vec![None; file.tensors.len()]),
    };
    files_and_tensors(file, &order, pool, &done, &progress)?;
    progress.finish();
    let files = done.files.into_inner().expect("no thread panicked");
    let files = files.into_iter().map(|d| d.expect("a digest for each file"));
    Ok(Digests {
        files: Some(files.collect()),
        tensors: done.tensors.into_inner().expect("no thread panicked"),
    })
}

fn tensors_alone(
    file: &GgufFile,
    order: &[Vec<usize>],
    pool: &ThreadPool,
    quiet: bool,
) -> Result<Vec<Option<Digest>>> {
    let order: Vec<usize> = order.iter().flatten().copied().collect();
    let total = order.iter().map(|&i| file.tensors[i].n_bytes).sum();
    let progress = Progress::new("hash", total, Unit::Bytes, quiet);
    let mut digests = vec![None; file.tensors.len()];
    let work = |buffers: &mut Buffers, &i: &usize| {
        let tensor = &file.tensors[i];
        let mut sha = Sha256::new();
        for at in (0..tensor.n_bytes).step_by(CHUNK) {
            let n = (tensor.n_bytes - at).min(CHUNK as u64);
            sha.update(buffers.read(file, tensor, at, n as usize)?);
            progress.add(n);
        }
        Ok(Digest(sha.finalize().into()))
    };
    in_order(pool, order.into_iter(), work, |i, sha| {
        digests[i] = Some(sha);
        Ok(())
    })?;
    progress.finish();
    Ok(digests)
}

/// What the threads have finished.
struct Done {
    files: Mutex<Vec<Option<Digest>>>,
    tensors: Mutex<Vec<Option<Digest>>>,
}

/// Some bytes of a file.
struct Chunk {
    part: usize,
    at: u64,
    bytes: Vec<u8>,
}

type Chunks = Receiver<Arc<Chunk>>;

/// One reader a lane, each with a thread for the file's digest and one for the tensors' (with a single thread, that one
/// does both).
fn files_and_tensors(
    file: &GgufFile,
    order: &[Vec<usize>],
    pool: &ThreadPool,
    done: &Done,
    progress: &Progress,
) -> Result<()> {
    let threads = pool.current_num_threads();
    let n_lanes = (threads / 2).clamp(1, file.parts().len());
    let n_chunks = (IN_FLIGHT / CHUNK / n_lanes).clamp(2, MAX_CHUNKS);
    let next_part = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        let mut ends = Vec::new();
        for _ in 0..n_lanes {
            let (back, free) = sync_channel(n_chunks);
            for _ in 0..n_chunks {
                back.send(Vec::new()).expect("room for all chunks");
            }
            let (to_files, files) = sync_channel(n_chunks);
            let (to_tensors, tensors) = sync_channel(n_chunks);
            let next = &next_part;
            readers.push(spawn_scoped(scope, "reader", move || {
                read_parts(file, next, &free, (&to_files, &to_tensors))
            })?);
            ends.push(Mutex::new(Some((files, back.clone()))));
            ends.push(Mutex::new(Some((tensors, back))));
        }
        pool.broadcast(|thread| {
            let end = |i: usize| ends.get(i)?.lock().expect("taken once").take();
            let mine = end(thread.index());
            let i = thread.index();
            if threads == 1 {
                let (Some((files, _)), Some((tensors, back))) = (mine, end(1)) else {
                    return;
                };
                both(file, order, (&files, &tensors), &back, done, progress);
            } else if let Some((chunks, back)) = mine {
                if i % 2 == 0 {
                    let mut hasher = FileHasher::new(file);
                    for chunk in chunks {
                        hasher.add(&chunk, done, progress);
                        recycle(chunk, &back);
                    }
                } else {
                    let mut hasher = TensorHasher::new(file, order);
                    for chunk in chunks {
                        hasher.add(&chunk, done);
                        recycle(chunk, &back);
                    }
                }
            }
        });
        let joined = readers
            .into_iter()
            .map(|r| r.join().expect("the reader does not panic"));
        joined.collect::<Result<Vec<()>>>().map(drop)
    })
}

/// Both digests on one thread.
fn both(
    file: &GgufFile,
    order: &[Vec<usize>],
    (files, tensors): (&Chunks, &Chunks),
    back: &SyncSender<Vec<u8>>,
    done: &Done,
    progress: &Progress,
) {
    let (mut a, mut b) = (FileHasher::new(file), TensorHasher::new(file, order));
    while let (Ok(chunk), Ok(same)) = (files.recv(), tensors.recv()) {
        drop(same);
        a.add(&chunk, done, progress);
        b.add(&chunk, done);
        recycle(chunk, back);
    }
}

/// Gives the buffer of a chunk that the other digest does not need any more back to the reader, which may have ended.
fn recycle(chunk: Arc<Chunk>, back: &SyncSender<Vec<u8>>) {
    if let Some(chunk) = Arc::into_inner(chunk) {
        drop(back.try_send(chunk.bytes));
    }
}

/// Reads one file after the other, as long as there are some that no other reader took.
fn read_parts(
    file: &GgufFile,
    next: &AtomicUsize,
    free: &Receiver<Vec<u8>>,
    (to_files, to_tensors): (&SyncSender<Arc<Chunk>>, &SyncSender<Arc<Chunk>>),
) -> Result<()> {
    loop {
        let part = next.fetch_add(1, Ordering::Relaxed);
        let Some(source) = file.parts().get(part).map(Part::source) else {
            return Ok(());
        };
        for at in (0..source.len()).step_by(CHUNK) {
            let Ok(mut bytes) = free.recv() else {
                return Ok(());
            };
            bytes.resize((source.len() - at).min(CHUNK as u64) as usize, 0);
            source.read_at(at, &mut bytes)?;
            let chunk = Arc::new(Chunk { part, at, bytes });
            // Nothing of the chunk stays here: were this the last to let go of it, its buffer would not come back.
            if to_files.send(Arc::clone(&chunk)).is_err() || to_tensors.send(chunk).is_err() {
                return Ok(());
            }
        }
    }
}

struct FileHasher<'a> {
    file: &'a GgufFile,
    sha: Sha256,
}

impl<'a> FileHasher<'a> {
    fn new(file: &'a GgufFile) -> Self {
        let sha = Sha256::new();
        Self { file, sha }
    }

    fn add(&mut self, chunk: &Chunk, done: &Done, progress: &Progress) {
        self.sha.update(&chunk.bytes);
        let n = chunk.bytes.len() as u64;
        if chunk.at + n == self.file.parts()[chunk.part].source().len() {
            let sha = Digest(self.sha.finalize_reset().into());
            done.files.lock().expect("no thread panicked")[chunk.part] = Some(sha);
        }
        progress.add(n);
    }
}

struct TensorHasher<'a> {
    file: &'a GgufFile,
    order: &'a [Vec<usize>],
    sha: Sha256,
    part: usize,
    /// Tensors of the part that are finished.
    n_done: usize,
}

impl<'a> TensorHasher<'a> {
    fn new(file: &'a GgufFile, order: &'a [Vec<usize>]) -> Self {
        Self {
            file,
            order,
            sha: Sha256::new(),
            part: 0,
            n_done: 0,
        }
    }

    fn add(&mut self, chunk: &Chunk, done: &Done) {
        if chunk.at == 0 {
            (self.part, self.n_done) = (chunk.part, 0);
        }
        let end = chunk.at + chunk.bytes.len() as u64;
        while let Some(&i) = self.order[self.part].get(self.n_done) {
            let range = self.file.tensor_range(&self.file.tensors[i]);
            if range.start >= end && !range.is_empty() {
                break;
            }
            if !range.is_empty() {
                let inside = |at: u64| (at.clamp(chunk.at, end) - chunk.at) as usize;
                self.sha
                    .update(&chunk.bytes[inside(range.start)..inside(range.end)]);
            }
            if range.end > end {
                break;
            }
            let sha = Digest(self.sha.finalize_reset().into());
            done.tensors.lock().expect("no thread panicked")[i] = Some(sha);
            self.n_done += 1;
        }
    }
}
