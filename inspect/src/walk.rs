//! Passes over the tensors' data: in pieces, in parallel, with bounded memory, results in the file's order.
//!
//! A tensor is cut into pieces of about [`PIECE_ELEMS`] elements: whole rows, or parts of a row where rows are longer
//! than that. The cut depends on shape and type alone, so sums over pieces are the same for any number of threads.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};

use gguf::{GgufFile, Part, Shape, TensorInfo};
use gguf_blocks::{Format, Geometry, Unit};
use gguf_cli::{Failure, Result};
use rayon::ThreadPool;

/// Elements of a piece: what is read, decoded and compared stays in the cache of a core. A multiple of the block of
/// every type, so that rows can be cut there.
pub(crate) const PIECE_ELEMS: u64 = 1 << 17;

/// Largest piece, in elements, where a type does not let rows be cut: 1 GiB of values.
const MAX_PIECE_ELEMS: u64 = 1 << 28;

/// Bytes behind the place that is being read which the system is asked to fetch meanwhile.
const READ_AHEAD: u64 = 16 << 20;

/// Results that may wait for the one in front of them, for each thread.
const WAITING: usize = 64;

/// A part of a tensor: some rows, or some columns of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First row, counted over all matrices of the tensor.
    pub(crate) row: u64,
    pub(crate) n_rows: u64,
    /// First column: 0 unless the row is cut.
    pub(crate) col: u64,
    pub(crate) n_cols: u64,
}

impl Piece {
    pub(crate) fn n_elems(&self) -> usize {
        (self.n_rows * self.n_cols) as usize
    }
}

/// How a tensor is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    n_rows: u64,
    n_cols: u64,
    piece_rows: u64,
    piece_cols: u64,
}

impl Grid {
    /// The cut of tensors of one shape, stored in each of the types. The shape fits the types' blocks.
    pub(crate) fn new(shape: &Shape, formats: &[&Format]) -> Self {
        let (n_rows, n_cols) = (shape.n_rows(), shape.n_cols());
        let geometries = || formats.iter().map(|f| &f.geometry);
        let cuttable = |g: &Geometry| g.is_plain() && PIECE_ELEMS.is_multiple_of(g.block_elems as u64);
        let (piece_rows, piece_cols) = if geometries().any(|g| g.unit() == Unit::Tensor) {
            (n_rows.max(1), n_cols)
        } else if n_cols > PIECE_ELEMS && geometries().all(cuttable) {
            (1, PIECE_ELEMS)
        } else {
            let group = geometries().map(|g| g.interleave as u64).max();
            let rows = (PIECE_ELEMS / n_cols.max(1)).max(1);
            (rows.next_multiple_of(group.unwrap_or(1)), n_cols)
        };
        Self {
            n_rows,
            n_cols,
            piece_rows,
            piece_cols,
        }
    }

    /// The cut of bytes of no known structure: one row of them.
    pub(crate) fn bytes(n: u64) -> Self {
        Self {
            n_rows: 1,
            n_cols: n,
            piece_rows: 1,
            piece_cols: PIECE_ELEMS,
        }
    }

    /// The pieces in the file's order.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Piece> + Send {
        let rows = if self.n_cols == 0 { 0 } else { self.n_rows };
        let steps = (0..rows).step_by(self.piece_rows as usize);
        steps.flat_map(move |row| {
            let cols = (0..self.n_cols).step_by(self.piece_cols as usize);
            cols.map(move |col| Piece {
                row,
                n_rows: self.piece_rows.min(self.n_rows - row),
                col,
                n_cols: self.piece_cols.min(self.n_cols - col),
            })
        })
    }
}

/// First byte and number of bytes of a piece of a tensor of this type.
pub(crate) fn span(format: &Format, n_cols: u64, piece: &Piece) -> (u64, usize) {
    let geometry = &format.geometry;
    let row_bytes = geometry.row_bytes(n_cols).expect("columns of whole blocks");
    let at = piece.row * row_bytes + piece.col / geometry.block_elems as u64 * geometry.block_bytes as u64;
    let n = geometry.tensor_bytes(piece.n_cols, piece.n_rows);
    (at, n.expect("whole blocks and groups of rows") as usize)
}

/// For each file its tensors in the order of their places, those left out that do not lie wholly inside the file and
/// apart from the ones before them: so no byte is read twice, however a hostile file lists it.
pub(crate) fn sound_tensors(file: &GgufFile) -> Vec<Vec<usize>> {
    let order = |part: &Part| {
        let mut order: Vec<usize> = part.tensors.clone().collect();
        let range = |i: usize| part.tensor_range(&file.tensors[i]);
        order.sort_by_key(|&i| (range(i).start, range(i).end));
        let mut next = 0;
        order.retain(|&i| {
            let range = range(i);
            let sound = range.start >= next
                && range.end <= part.source().len()
                && range.end - range.start == file.tensors[i].n_bytes;
            if sound {
                next = range.end;
            }
            sound
        });
        order
    };
    file.parts().iter().map(order).collect()
}

/// Buffers of a thread, kept from piece to piece.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) bytes: Vec<u8>,
    pub(crate) values: Vec<f32>,
}

impl Buffers {
    /// Reads bytes `at .. at + n` of a tensor.
    pub(crate) fn read(&mut self, file: &GgufFile, tensor: &TensorInfo, at: u64, n: usize) -> Result<&[u8]> {
        read(file, tensor, at, n, &mut self.bytes)?;
        Ok(&self.bytes)
    }

    /// Reads and decodes a piece of a tensor whose type can be decoded.
    pub(crate) fn decode(
        &mut self,
        file: &GgufFile,
        tensor: &TensorInfo,
        format: &Format,
        piece: &Piece,
    ) -> Result<&[f32]> {
        if piece.n_rows * piece.n_cols > MAX_PIECE_ELEMS {
            return Err(Failure::Input(format!(
                "tensor `{}`: rows of {} elements of {} cannot be decoded in parts: expected at most {MAX_PIECE_ELEMS}",
                tensor.name, piece.n_cols, format.name
            )));
        }
        let (at, n) = span(format, tensor.shape.n_cols(), piece);
        read(file, tensor, at, n, &mut self.bytes)?;
        self.values.resize(piece.n_elems(), 0.0);
        decode(format, piece.n_cols as usize, &self.bytes, &mut self.values);
        Ok(&self.values)
    }
}

fn read(file: &GgufFile, tensor: &TensorInfo, at: u64, n: usize, bytes: &mut Vec<u8>) -> Result<()> {
    let start = file.tensor_range(tensor).start.saturating_add(at);
    let ahead = start.saturating_add(READ_AHEAD);
    file.part(tensor).source().read_ahead(ahead, n as u64);
    bytes.resize(n, 0);
    Ok(file.read_tensor(tensor, at, bytes)?)
}

/// Decodes whole rows of this many columns, or parts of rows of a plain type.
pub(crate) fn decode(format: &Format, n_cols: usize, bytes: &[u8], out: &mut [f32]) {
    let done = format.decode_rows(n_cols, bytes, out);
    done.expect("a type that can be decoded");
}

/// What the threads of [`in_order`] share.
struct Shared<I, T, R, S> {
    items: I,
    n_taken: usize,
    n_done: usize,
    waiting: BTreeMap<usize, (T, Result<R>)>,
    sink: S,
    /// The first error in the order of the items.
    error: Option<Failure>,
    stopped: bool,
}

/// Runs `work` on every item on all threads of the pool, each with a state of its own, and hands the results to
/// `sink` in the order of the items. Ends at the first error, in the same order. Items are made when a thread is
/// free, and no thread runs far ahead of the others, so that memory stays bounded.
pub(crate) fn in_order<T: Send, B: Default, R: Send>(
    pool: &ThreadPool,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(&mut B, &T) -> Result<R> + Sync,
    sink: impl FnMut(T, R) -> Result<()> + Send,
) -> Result<()> {
    let window = WAITING * pool.current_num_threads();
    let shared = Mutex::new(Shared {
        items,
        n_taken: 0,
        n_done: 0,
        waiting: BTreeMap::new(),
        sink,
        error: None,
        stopped: false,
    });
    let moved = Condvar::new();
    let lock = || shared.lock().expect("a thread that panics ends the program");
    pool.broadcast(|_| {
        let mut state = B::default();
        // Wakes the others should `work` panic, so that the panic comes out instead of a standstill.
        let _stop = OnDrop(|| {
            if std::thread::panicking()
                && let Ok(mut shared) = shared.lock()
            {
                shared.stopped = true;
                moved.notify_all();
            }
        });
        while let Some((i, item)) = take(lock(), &moved, window) {
            let result = work(&mut state, &item);
            deliver(&mut lock(), i, item, result);
            moved.notify_all();
        }
    });
    let error = lock().error.take();
    error.map_or(Ok(()), Err)
}

/// The next item, once the results before it are close behind.
fn take<I: Iterator<Item = T>, T, R, S>(
    mut shared: MutexGuard<'_, Shared<I, T, R, S>>,
    moved: &Condvar,
    window: usize,
) -> Option<(usize, T)> {
    while !shared.stopped && shared.n_taken >= shared.n_done + window {
        shared = moved.wait(shared).expect("a thread that panics ends the program");
    }
    if shared.stopped {
        return None;
    }
    let item = shared.items.next()?;
    shared.n_taken += 1;
    Some((shared.n_taken - 1, item))
}

/// Hands over a result and all that waited for it.
fn deliver<I, T, R, S: FnMut(T, R) -> Result<()>>(
    shared: &mut Shared<I, T, R, S>,
    i: usize,
    item: T,
    result: Result<R>,
) {
    shared.waiting.insert(i, (item, result));
    while !shared.stopped
        && let Some((item, result)) = shared.waiting.remove(&shared.n_done)
    {
        shared.n_done += 1;
        if let Err(e) = result.and_then(|r| (shared.sink)(item, r)) {
            shared.error = Some(e);
            shared.stopped = true;
        }
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use gguf::Shape;
    use gguf_blocks::registry;
    use gguf_cli::{Failure, thread_pool};

    use super::{Grid, PIECE_ELEMS, in_order, span};

    #[test]
    fn pieces_cover_a_tensor_of_any_type_once_and_in_order() {
        let long = PIECE_ELEMS * 2 + 256;
        for dims in [&[512, 16][..], &[4096, 96, 3], &[long, 8], &[256, 0], &[0, 8]] {
            let shape = Shape::new(dims).expect("a shape");
            for format in registry::all() {
                let Some(n_bytes) = shape.n_bytes(format) else {
                    continue;
                };
                let mut next = 0;
                for piece in Grid::new(&shape, &[format]).pieces() {
                    let (at, n) = span(format, dims[0], &piece);
                    assert_eq!(at, next, "{piece:?} of {} {dims:?}", format.name);
                    let plain = format.geometry.is_plain();
                    assert!(!plain || piece.n_elems() as u64 <= PIECE_ELEMS, "{piece:?}");
                    next = at + n as u64;
                }
                if shape.n_elems() > 0 {
                    assert_eq!(next, n_bytes, "{} {dims:?}", format.name);
                }
            }
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_items_and_the_first_error_counts() {
        for threads in [1, 3, 8] {
            let pool = thread_pool(threads).expect("threads");
            let mut seen = Vec::new();
            let work = |n: &mut u64, i: &u64| {
                *n += 1;
                Ok(i * 2)
            };
            in_order(&pool, 0..2000_u64, work, |i, r| {
                seen.push((i, r));
                Ok(())
            })
            .expect("no error");
            assert!(seen.iter().copied().eq((0..2000).map(|i| (i, i * 2))));

            let work = |(): &mut (), i: &u64| match i {
                700.. => Err(Failure::Input(i.to_string())),
                _ => Ok(()),
            };
            let mut n = 0;
            let e = in_order(&pool, 0..2000_u64, work, |_, ()| {
                n += 1;
                Ok(())
            });
            assert!(matches!(e, Err(Failure::Input(line)) if line == "700"));
            assert_eq!(n, 700);
        }
    }
}
