//! The GGUF file that a checkpoint would become, computed as it is read.
//!
//! The plan knows the head and the place of every row, and a view reads any rows of its matrix at any time. So any
//! bytes of the file can be had without the others, on the thread that asks, and the file can be opened, encoded, split
//! or measured like one on disk.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gguf::TensorInfo;
use gguf::source::{ReadAdvice, Source, check_range};
use gguf_blocks::{Cpu, Importance};
use gguf_quantize::{Fault, first_not_finite};
use rayon::prelude::*;

use crate::Result;
use crate::error::Error;
use crate::plan::{Plan, PlannedTensor};
use crate::view::View;

/// Values that are converted at once, 256 KiB as F32, unless a row has more.
const CHUNK_ELEMS: u64 = 1 << 16;

/// Bytes of a view with another order of rows and columns than the stored matrix that are read at once where memory
/// allows. Each read takes a few neighbours of every stored row, so small ones meet every page of the matrix for little.
const TRANSPOSED_AT_ONCE: u64 = 32 << 20;

/// Bytes that a look at a whole tensor makes at once.
const SCAN_BYTES: u64 = 1 << 20;

/// Bytes of scratch for each value in work: the value, the stored form and what is read with it.
const SCRATCH_BYTES: u64 = 12;

/// A checkpoint as a GGUF file.
#[derive(Debug)]
pub(crate) struct VirtualFile {
    plan: Arc<Plan>,
}

impl VirtualFile {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        Self { plan }
    }

    /// Tensors with a value that their type cannot hold. Reads all that are not taken as they are, on all threads.
    ///
    /// # Errors
    /// A failed read; weights that are not finite.
    pub(crate) fn too_large(plan: &Plan) -> Result<Vec<String>> {
        let found = |(tensor, info): (&PlannedTensor, &TensorInfo)| {
            let rows = Rows { plan, info, tensor };
            match rows.holds() {
                Ok(()) => Ok(None),
                Err(Error::TooLarge(_)) => Ok(Some(info.name.clone())),
                Err(e) => Err(e),
            }
        };
        let tensors = plan.tensors.par_iter().zip(&plan.layout.tensors);
        tensors.map(found).filter_map(Result::transpose).collect()
    }

    /// The tensor in whose data, or padding behind it, byte `at` of the file lies.
    fn tensor_at(&self, at: u64) -> Option<usize> {
        let at = at.checked_sub(self.plan.layout.head.len() as u64)?;
        let behind = self.plan.layout.tensors.partition_point(|t| t.offset <= at);
        behind.checked_sub(1)
    }

    /// Fills `buf` from byte `at`; all of it lies in the file.
    fn read(&self, mut at: u64, mut buf: &mut [u8]) -> Result<()> {
        let head = &self.plan.layout.head;
        while !buf.is_empty() {
            let n = match self.tensor_at(at) {
                None => {
                    let from = (at as usize).min(head.len());
                    let n = buf.len().min(head.len() - from);
                    buf[..n].copy_from_slice(&head[from..from + n]);
                    n
                }
                Some(i) => self.read_tensor(i, at - head.len() as u64, buf)?,
            };
            // Only a file without tensors has nothing behind its head.
            if n == 0 {
                buf.fill(0);
                return Ok(());
            }
            at += n as u64;
            buf = &mut buf[n..];
        }
        Ok(())
    }

    /// Fills the front of `buf` from byte `at` of the data section, which lies in tensor `i` or the padding behind it.
    /// Returns how many bytes those are.
    fn read_tensor(&self, i: usize, at: u64, buf: &mut [u8]) -> Result<usize> {
        let tensors = &self.plan.layout.tensors;
        let info = &tensors[i];
        let within = at - info.offset;
        if within >= info.n_bytes {
            let next = tensors.get(i + 1).map_or(u64::MAX, |next| next.offset - at);
            let n = (buf.len() as u64).min(next) as usize;
            buf[..n].fill(0);
            return Ok(n);
        }
        let n = (buf.len() as u64).min(info.n_bytes - within) as usize;
        let rows = Rows {
            plan: &self.plan,
            info,
            tensor: &self.plan.tensors[i],
        };
        rows.read(within, &mut buf[..n])?;
        Ok(n)
    }
}

impl Source for VirtualFile {
    fn len(&self) -> u64 {
        self.plan.layout.total_bytes
    }

    fn path(&self) -> &Path {
        &self.plan.dir
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> gguf::Result<()> {
        check_range(self.path(), self.len(), at, buf.len())?;
        self.read(at, buf).map_err(|e| match e {
            Error::Container(e) => e,
            e => gguf::Error::Computed(e.to_string().into()),
        })
    }

    fn slice(&self, at: u64, len: usize) -> gguf::Result<Cow<'_, [u8]>> {
        check_range(self.path(), self.len(), at, len)?;
        let mut buf = vec![0; len];
        self.read_at(at, &mut buf)?;
        Ok(Cow::Owned(buf))
    }

    fn inputs(&self) -> Vec<PathBuf> {
        self.plan.inputs.clone()
    }

    fn advice(&self, at: u64, len: u64) -> ReadAdvice {
        let Some(tensor) = self.tensor_at(at).map(|i| &self.plan.tensors[i]) else {
            return ReadAdvice::default();
        };
        let views = tensor.views.iter();
        views.fold(ReadAdvice::default(), |sum, view| {
            let one = advice(tensor, view, len);
            ReadAdvice {
                at_once: sum.at_once.max(one.at_once),
                memory: sum.memory.max(one.memory),
            }
        })
    }
}

/// How `len` bytes of a matrix are best read.
fn advice(tensor: &PlannedTensor, view: &View, len: u64) -> ReadAdvice {
    if is_copy(tensor, view) {
        return ReadAdvice::default();
    }
    let (n_rows, n_cols) = (view.n_rows(), view.n_cols());
    let row_bytes = row_bytes(tensor, view).max(1);
    let rows = len.div_ceil(row_bytes).min(n_rows);
    let elems = rows
        .saturating_mul(n_cols)
        .min(chunk_rows(view).saturating_mul(n_cols));
    ReadAdvice {
        at_once: if view.transpose {
            n_rows.saturating_mul(row_bytes).min(TRANSPOSED_AT_ONCE)
        } else {
            view.stored.rows_at_once().saturating_mul(row_bytes)
        },
        // The rows at both ends of a read may be wanted in part, and are made whole.
        memory: elems
            .saturating_mul(SCRATCH_BYTES)
            .saturating_add(row_bytes.saturating_mul(2)),
    }
}

/// Whether the source's bytes are the file's.
fn is_copy(tensor: &PlannedTensor, view: &View) -> bool {
    view.native().is_some_and(|f| f.id == tensor.format.id)
}

fn row_bytes(tensor: &PlannedTensor, view: &View) -> u64 {
    let bytes = tensor.format.geometry.row_bytes(view.n_cols());
    bytes.expect("the plan gives tensors types that their rows fit")
}

/// Rows that are converted at once. Those of a transposed view are read together, however many there are.
fn chunk_rows(view: &View) -> u64 {
    if view.transpose {
        return u64::MAX;
    }
    (CHUNK_ELEMS / view.n_cols().max(1)).max(view.stored.rows_at_once())
}

/// A tensor's rows.
struct Rows<'a> {
    plan: &'a Plan,
    info: &'a TensorInfo,
    tensor: &'a PlannedTensor,
}

impl Rows<'_> {
    /// Fills `buf` from byte `at` of the tensor.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let wanted = at..at + buf.len() as u64;
        let mut values = Vec::new();
        // The first byte and element of a view.
        let (mut first, mut first_elem) = (0, 0);
        for view in &self.tensor.views {
            if first >= wanted.end {
                break;
            }
            let row_bytes = row_bytes(self.tensor, view);
            let end = first + view.n_rows() * row_bytes;
            let part = wanted.start.max(first)..wanted.end.min(end);
            if part.start < part.end {
                let (start, end) = (part.start - first, part.end - first);
                let rows = start / row_bytes..end.div_ceil(row_bytes);
                let whole = start.div_ceil(row_bytes)..end / row_bytes;
                for rows in self.pieces(view, rows, whole) {
                    let place = first + rows.start * row_bytes..first + rows.end * row_bytes;
                    let cut = place.start.max(wanted.start)..place.end.min(wanted.end);
                    let out = &mut buf[(cut.start - at) as usize..(cut.end - at) as usize];
                    let chunk = Chunk {
                        view,
                        first: rows.start,
                        first_elem: first_elem + rows.start * view.n_cols(),
                    };
                    if cut == place {
                        self.make(&chunk, &mut values, out)?;
                    } else {
                        let mut whole = vec![0; (place.end - place.start) as usize];
                        self.make(&chunk, &mut values, &mut whole)?;
                        let skip = (cut.start - place.start) as usize;
                        out.copy_from_slice(&whole[skip..skip + out.len()]);
                    }
                }
            }
            first = end;
            first_elem += view.n_rows() * view.n_cols();
        }
        Ok(())
    }

    /// Rows of a view in pieces that are made at once. Those that are copied go straight to where they are wanted, but for
    /// the ones at both ends of which only a part is, which stand outside of `whole`.
    fn pieces(
        &self,
        view: &View,
        rows: Range<u64>,
        whole: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + use<> {
        let (whole, step) = match is_copy(self.tensor, view) {
            true if whole.start < whole.end => (whole, u64::MAX),
            true => (rows.end..rows.end, u64::MAX),
            false => (rows.clone(), chunk_rows(view)),
        };
        [rows.start..whole.start, whole.clone(), whole.end..rows.end]
            .into_iter()
            .flat_map(move |part| chunks(part, step))
    }

    /// Makes all rows and forgets them.
    fn holds(&self) -> Result<()> {
        let mut at = 0;
        for view in &self.tensor.views {
            let len = view.n_rows() * row_bytes(self.tensor, view);
            let is_plain_copy = is_copy(self.tensor, view);
            for part in chunks(at..at + len, SCAN_BYTES) {
                if !is_plain_copy {
                    self.read(part.start, &mut vec![0; (part.end - part.start) as usize])?;
                }
            }
            at += len;
        }
        Ok(())
    }

    /// Fills `out` with whole rows.
    fn make(&self, chunk: &Chunk<'_>, values: &mut Vec<f32>, out: &mut [u8]) -> Result<()> {
        let (files, view) = (&self.plan.files, chunk.view);
        if is_copy(self.tensor, view) {
            return view.read_native(files, chunk.first, out);
        }
        let to = self.tensor.format;
        let encode = to
            .encoder(Cpu::best())
            .ok_or_else(|| Error::unsupported(format!("type {}", to.name), "it has no encoder"))?;
        let row_bytes = row_bytes(self.tensor, view) as usize;
        let n_cols = view.n_cols() as usize;
        values.resize(out.len() / row_bytes * n_cols, 0.0);
        view.read(files, chunk.first, values)?;
        if let Some(i) = first_not_finite(values) {
            let (row, col) = self.place(chunk, i);
            let fault = Fault::not_finite(row, col, values[i]);
            return Err(Error::NotFinite(self.describe(&fault)));
        }
        for (values, out) in values.chunks_exact(n_cols).zip(out.chunks_exact_mut(row_bytes)) {
            encode(values, Importance::None, out);
        }
        match to.check_rows(n_cols, out) {
            None => Ok(()),
            Some(bad) => {
                let (row, col) = self.place(chunk, bad.row * n_cols + bad.col);
                let values = &values[bad.row * n_cols + bad.col..(bad.row + 1) * n_cols];
                let fault = Fault::too_large(row, col, to, values);
                Err(Error::TooLarge(self.describe(&fault)))
            }
        }
    }

    /// Row, counted over all matrices of the tensor, and column of element `i` of a chunk.
    fn place(&self, chunk: &Chunk<'_>, i: usize) -> (u64, usize) {
        let elem = chunk.first_elem + i as u64;
        let n_cols = self.info.shape.n_cols().max(1);
        (elem / n_cols, (elem % n_cols) as usize)
    }

    fn describe(&self, fault: &Fault) -> Box<str> {
        fault.describe(&self.info.name, &self.info.shape).into()
    }
}

/// Neighbouring rows of a view.
struct Chunk<'a> {
    view: &'a View,
    /// The first row, counted in the view.
    first: u64,
    /// Its first element, counted in the tensor.
    first_elem: u64,
}

/// A range in pieces of at most `step`.
fn chunks(range: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = at.saturating_add(step).min(range.end);
        (start < range.end).then_some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Options;

    #[test]
    fn pieces_of_turned_matrices_are_those_of_the_whole() {
        let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/qwen3moe"));
        let options = Options {
            outtype: "bf16".to_owned(),
            ..Options::default()
        };
        let mut plan = Plan::new(dir, &options).expect("a plan");
        let stack = |t: &TensorInfo| t.name.ends_with("ffn_gate_exps.weight");
        let i = plan.layout.tensors.iter().position(stack).expect("a stack");
        plan.tensors[i].views.iter_mut().for_each(|v| v.transpose = true);
        let expected: Vec<u8> = plan.tensors[i]
            .views
            .iter()
            .flat_map(|view| {
                let mut values = vec![0.0; (view.n_rows() * view.n_cols()) as usize];
                view.read(&plan.files, 0, &mut values).expect("readable");
                // BF16 is the upper half, and the checkpoint is BF16.
                let halves = values.into_iter().map(|v| (v.to_bits() >> 16) as u16);
                halves.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
            })
            .collect();
        let at = plan.layout.head.len() as u64 + plan.layout.tensors[i].offset;
        let file = VirtualFile::new(Arc::new(plan));
        let n = expected.len();
        for (start, len) in [(0, n), (1, 3), (n / 2 - 7, 4001), (n / 8 - 5, 9), (n - 1, 1)] {
            let mut bytes = vec![0; len];
            file.read_at(at + start as u64, &mut bytes)
                .expect("inside the file");
            assert!(bytes == expected[start..start + len], "{len} bytes from {start}");
        }
        let advice = file.advice(at, n as u64);
        assert!(advice.at_once > 0 && advice.memory >= n as u64 / 8, "{advice:?}");
    }
}
