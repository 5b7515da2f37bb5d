//! How a model's bytes are had: mapped, read into memory, locked, read ahead.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use gguf::GgufFile;
use gguf::source::{Memory, Source};
use gguf_models::component::split_layer;

use crate::Result;
use crate::pool;

/// Bytes that are read at a time, by one thread.
const PIECE: usize = 8 << 20;

/// How a model's bytes are had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Whether the file is mapped: opened at once, its pages shared with other programs and read when they are first
    /// used. Else all of it is read into memory first.
    pub mmap: bool,
    /// Whether the bytes are kept in physical memory, which reads all of them.
    pub mlock: bool,
    /// Whether a mapped file is read ahead.
    pub prefetch: Prefetch,
}

/// Reading ahead of a mapped file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// Pages are read when they are first used.
    #[default]
    Off,
    /// A thread reads them in the order in which a forward pass uses them, beside other work.
    Background,
}

impl Default for LoadOptions {
    /// Mapped, no more.
    fn default() -> Self {
        Self {
            mmap: true,
            mlock: false,
            prefetch: Prefetch::Off,
        }
    }
}

/// How far loading is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Bytes of the piece that was read just now.
    pub piece: u64,
    /// Bytes of all pieces.
    pub total: u64,
}

/// Is told of every piece that was read, from any thread.
pub type LoadWatch = Arc<dyn Fn(Loaded) + Send + Sync>;

/// Opens a file, or all shards of a set.
pub(crate) fn open(path: &Path, options: LoadOptions, watch: &LoadWatch) -> Result<GgufFile> {
    let file = if options.mmap {
        GgufFile::open_mapped(path)?
    } else {
        read(&GgufFile::open(path)?, watch)?
    };
    if options.mlock {
        file.require_sound()?;
        spread(&file, options);
        for part in file.parts() {
            part.source().lock()?;
        }
    }
    Ok(file)
}

/// Reads a mapped file from node after node, if memory is spread: locking reads the rest, all from one.
fn spread(file: &GgufFile, options: LoadOptions) {
    let beside = pool::beside();
    if !options.mmap || !beside.spreads() {
        return;
    }
    let _back = pool::KeptAffinity::new();
    for (i, piece) in in_layer_order(file).into_iter().enumerate() {
        beside.go(i);
        piece.source.fetch(piece.at, piece.len);
    }
}

/// The same file with all bytes in memory. Nothing is taken for a file that is shorter than its head says.
pub(crate) fn read(file: &GgufFile, watch: &LoadWatch) -> Result<GgufFile> {
    file.require_sound()?;
    let total = file.parts().iter().map(|p| p.source().len()).sum();
    let sources = file.parts().iter().map(|part| {
        let source = part.source();
        let mut memory = Memory::new(source.path(), source.len())?;
        let advice = source.advice(0, source.len());
        let n = PIECE.max(usize::try_from(advice.at_once).unwrap_or(PIECE));
        let pieces = memory.bytes_mut().chunks_mut(n).enumerate();
        pool::try_for_each(pieces, |(i, piece)| {
            source.read_at((i * n) as u64, piece)?;
            watch(Loaded {
                piece: piece.len() as u64,
                total,
            });
            Ok::<_, gguf::Error>(())
        })?;
        memory.into_source()
    });
    let sources: gguf::Result<Vec<_>> = sources.collect();
    Ok(GgufFile::from_sources(sources?)?)
}

/// A thread that reads a mapped model ahead, until it is through or this is dropped.
#[derive(Debug)]
pub(crate) struct Prefetcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Prefetcher {
    /// Starts the thread. Where the system has none to give, nothing is read ahead.
    pub(crate) fn start(file: &GgufFile, watch: LoadWatch) -> Self {
        let pieces = in_layer_order(file);
        let total = pieces.iter().map(|p| p.len).sum();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let beside = pool::beside();
        let read = move || {
            beside.leave_seat();
            for (i, piece) in pieces.into_iter().enumerate() {
                beside.go(i);
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                piece.source.fetch(piece.at, piece.len);
                watch(Loaded {
                    piece: piece.len,
                    total,
                });
            }
        };
        let thread = std::thread::Builder::new()
            .name("prefetch".to_owned())
            .spawn(read);
        Self {
            stop,
            thread: thread.ok(),
        }
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there took nothing with it: what was not read ahead is read when it is used.
            let _ = thread.join();
        }
    }
}

/// A range of one file.
struct Piece {
    source: Arc<dyn Source>,
    at: u64,
    len: u64,
}

/// The tensors as a forward pass comes by them, in pieces.
fn in_layer_order(file: &GgufFile) -> Vec<Piece> {
    let mut tensors: Vec<_> = file.tensors.iter().collect();
    tensors.sort_by_key(|t| {
        let layer = match split_layer(&t.name) {
            Some((layer, _)) => 1 + u64::from(layer),
            None if t.name.starts_with("output") => u64::MAX,
            None => 0,
        };
        (layer, t.part, t.offset)
    });
    let mut pieces = Vec::new();
    for tensor in tensors {
        let range = file.tensor_range(tensor);
        let starts = range.clone().step_by(PIECE);
        pieces.extend(starts.map(|at| Piece {
            source: file.part(tensor).shared_source(),
            at,
            len: (range.end - at).min(PIECE as u64),
        }));
    }
    pieces
}
