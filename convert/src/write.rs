//! The stream from sources to output.
//!
//! Tensors are cut into chunks of at most [`CHUNK_ELEMS`] elements, whole blocks inside one stretch of a source
//! file. Chunks are read and converted in parallel, batch by batch; while one batch is written, the next is
//! made. So memory is about 4 MiB a thread whatever the size of a tensor, and the bytes do not depend on the
//! number of threads.

use std::io::Write;
use std::path::Path;

use gguf::atomic::AtomicFile;
use gguf::{GgufFile, Writer};
use gguf_blocks::{Cpu, Format, Importance};
use gguf_cli::Progress;
use gguf_models::{arch, check};
use rayon::prelude::*;

use crate::Result;
use crate::error::{Error, shortened};
use crate::plan::{Plan, PlannedTensor};
use crate::view::View;

/// Elements of the largest chunk: a multiple of every block, 1 MiB as F32.
const CHUNK_ELEMS: u64 = 1 << 18;

/// How many findings a message lists.
const N_SHOWN: usize = 3;

/// Converts into `path`; call it inside a thread pool. The output appears under its name when it is complete,
/// and is then opened again and compared with its architecture.
///
/// # Errors
/// An output that cannot be written, a source that cannot be read, values that are no numbers, and values that
/// the output's type cannot hold.
pub fn write(plan: &Plan, path: &Path, force: bool, progress: &Progress) -> Result<()> {
    let inputs: Vec<&Path> = plan.inputs.iter().map(AsRef::as_ref).collect();
    let out = AtomicFile::create(path, force, &inputs, Some(plan.layout.total_bytes))?;
    let mut writer = Writer::new(out, &plan.layout)?;
    stream(plan, &mut writer, progress)?;
    writer.finish()?.commit()?;
    verify(path)
}

fn stream<W: Write + Send>(plan: &Plan, writer: &mut Writer<'_, W>, progress: &Progress) -> Result<()> {
    let mut chunks = chunks(plan).peekable();
    let (mut ready, mut next) = (Batch::default(), Batch::default());
    let mut scratch = Scratch::default();
    loop {
        next.take(&mut chunks, rayon::current_num_threads());
        let (written, made) = rayon::join(|| ready.write(writer, progress), || next.make(plan, &mut scratch));
        written?;
        made?;
        if next.chunks.is_empty() {
            return Ok(());
        }
        std::mem::swap(&mut ready, &mut next);
    }
}

/// Rows of a tensor that are converted at once.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    tensor: &'a PlannedTensor,
    view: &'a View,
    /// First row, counted in the tensor.
    first: u64,
    /// First row, counted in the view.
    first_in_view: u64,
    n_rows: u64,
}

/// All chunks in the output's order.
fn chunks(plan: &Plan) -> impl Iterator<Item = Chunk<'_>> {
    plan.tensors.iter().flat_map(|tensor| {
        let starts = tensor.views.iter().scan(0, |end, view| {
            let start = *end;
            *end += view.n_rows();
            Some((start, view))
        });
        starts.flat_map(move |(start, view)| {
            let per_chunk = (CHUNK_ELEMS / view.n_cols().max(1)).max(1);
            (0..view.n_rows().div_ceil(per_chunk)).map(move |i| {
                let first_in_view = i * per_chunk;
                Chunk {
                    tensor,
                    view,
                    first: start + first_in_view,
                    first_in_view,
                    n_rows: per_chunk.min(view.n_rows() - first_in_view),
                }
            })
        })
    })
}

/// Chunks and their bytes in the output, one behind the other.
#[derive(Default)]
struct Batch<'a> {
    chunks: Vec<Chunk<'a>>,
    out: Vec<u8>,
}

/// What is needed only while a batch is made.
#[derive(Default)]
struct Scratch {
    values: Vec<f32>,
}

/// A chunk with its parts of the buffers.
struct Work<'a, 'b> {
    chunk: &'a Chunk<'a>,
    values: &'b mut [f32],
    out: &'b mut [u8],
}

impl<'a> Batch<'a> {
    /// Takes the next chunks: about a full one for every thread, in any number of smaller ones.
    fn take(&mut self, chunks: &mut std::iter::Peekable<impl Iterator<Item = Chunk<'a>>>, n_threads: usize) {
        self.chunks.clear();
        let mut room = CHUNK_ELEMS * n_threads as u64;
        let mut is_first = true;
        while let Some(chunk) = chunks.next_if(|c| is_first || c.n_elems() <= room) {
            room = room.saturating_sub(chunk.n_elems());
            is_first = false;
            self.chunks.push(chunk);
        }
    }

    /// Reads and converts every chunk. Of several errors the first chunk's counts.
    fn make(&mut self, plan: &Plan, scratch: &mut Scratch) -> Result<()> {
        const WHOLE: &str = "the buffers are as long as the chunks together";
        let sizes: Vec<_> = self.chunks.iter().map(Chunk::sizes).collect();
        let total = |part: fn(&Sizes) -> usize| sizes.iter().map(part).sum();
        self.out.resize(total(|s| s.out), 0);
        scratch.values.resize(total(|s| s.values), 0.0);

        let (mut values, mut out) = (&mut scratch.values[..], &mut self.out[..]);
        let mut work = Vec::with_capacity(sizes.len());
        for (chunk, size) in self.chunks.iter().zip(&sizes) {
            work.push(Work {
                chunk,
                values: values.split_off_mut(..size.values).expect(WHOLE),
                out: out.split_off_mut(..size.out).expect(WHOLE),
            });
        }
        let results: Vec<Result<()>> = work.into_par_iter().map(|w| w.run(plan)).collect();
        results.into_iter().collect()
    }

    fn write<W: Write>(&self, writer: &mut Writer<'_, W>, progress: &Progress) -> Result<()> {
        let mut rest = &self.out[..];
        for chunk in &self.chunks {
            let (bytes, after) = rest.split_at(chunk.sizes().out);
            writer.write(bytes)?;
            progress.add(bytes.len() as u64);
            rest = after;
        }
        Ok(())
    }
}

/// Lengths of a chunk's buffers.
struct Sizes {
    values: usize,
    out: usize,
}

impl Chunk<'_> {
    fn n_elems(&self) -> u64 {
        self.n_rows * self.view.n_cols()
    }

    /// Whether the source's bytes are the output's.
    fn is_copy(&self) -> bool {
        self.view.native().is_some_and(|f| f.id == self.tensor.format.id)
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            values: if self.is_copy() {
                0
            } else {
                self.n_elems() as usize
            },
            out: n_bytes(self.tensor.format, self.n_elems()),
        }
    }

    /// Refuses values that are no numbers, and those that would become infinite.
    fn check_range(&self, values: &[f32]) -> Result<()> {
        let to = self.tensor.format;
        let limit = overflow_limit(to).unwrap_or(f32::INFINITY);
        // NaN fails every comparison.
        let fits = |v: &f32| v.abs() < limit;
        let Some(i) = values.iter().position(|v| !fits(v)) else {
            return Ok(());
        };
        if !values[i].is_finite() {
            return Err(self.not_finite(i as u64, values[i]));
        }
        let (why, wider) = match to.name {
            "Q8_0" => ("as the F16 scale of a block of Q8_0", "`--outtype bf16` or `f32`"),
            "BF16" => ("as BF16", "`--outtype f32`"),
            _ => ("as F16", "`--outtype bf16` or `f32`"),
        };
        let expected = format!("a magnitude below {limit} {why} holds; pass {wider}");
        Err(Error::mismatch(self.element(i as u64), expected, values[i]))
    }

    /// Refuses bytes to be copied that hold a value that is no number.
    fn check_copy(&self, bytes: &[u8]) -> Result<()> {
        let format = self.tensor.format;
        let Some(i) = (format.check)(bytes) else {
            return Ok(());
        };
        let size = format.geometry.block_bytes;
        let mut value = [f32::NAN];
        if let (Some(decode), Some(bytes)) = (format.decode, bytes.get(i * size..(i + 1) * size)) {
            decode(bytes, &mut value);
        }
        Err(self.not_finite(i as u64, value[0]))
    }

    fn not_finite(&self, i: u64, value: f32) -> Error {
        let expected = "a finite value, as no model has others; the checkpoint is damaged";
        Error::mismatch(self.element(i), expected, value)
    }

    /// An element of the chunk, as messages name it.
    fn element(&self, i: u64) -> String {
        format!(
            "tensor `{}` element {}",
            self.tensor.name,
            self.first * self.view.n_cols() + i
        )
    }
}

impl Work<'_, '_> {
    fn run(self, plan: &Plan) -> Result<()> {
        let chunk = self.chunk;
        if chunk.is_copy() {
            chunk
                .view
                .read_native(&plan.files, chunk.first_in_view, self.out)?;
            return chunk.check_copy(self.out);
        }
        let to = chunk.tensor.format;
        let encode = to
            .encoder(Cpu::best())
            .ok_or_else(|| Error::unsupported(format!("type {}", to.name), "it has no encoder"))?;
        chunk.view.read(&plan.files, chunk.first_in_view, self.values)?;
        chunk.check_range(self.values)?;
        encode(self.values, Importance::None, self.out);
        Ok(())
    }
}

fn n_bytes(format: &Format, n_elems: u64) -> usize {
    format
        .geometry
        .row_bytes(n_elems)
        .expect("chunks are whole blocks") as usize
}

/// The smallest magnitude that becomes infinite in a type, where that is one that F32 holds.
fn overflow_limit(format: &Format) -> Option<f32> {
    const F16: f32 = 65520.0;
    match format.name {
        "F16" => Some(F16),
        // The scale is F16 and a 127th of the block's largest magnitude.
        "Q8_0" => Some(F16 * 127.0),
        "BF16" => Some(f32::from_bits(0x7F7F_8000)),
        _ => None,
    }
}

/// Opens the output and compares it with its architecture.
fn verify(path: &Path) -> Result<()> {
    let file = GgufFile::open(path)?;
    let (arch, hparams) = arch::describe(&file.metadata)?;
    let layout = gguf::validate::layout(&file);
    let tensors = check::check(&file, arch, &hparams);
    let findings: Vec<_> = layout
        .into_iter()
        .chain(tensors)
        .filter(|f| f.severe)
        .map(|f| format!("`{}`: {}", f.object, f.what))
        .collect();
    if findings.is_empty() {
        return Ok(());
    }
    let object = format!("`{}` read back", path.display());
    Err(Error::mismatch(
        object,
        "no findings",
        shortened(&findings, N_SHOWN, "; "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_where_rounding_reaches_infinity() {
        for name in ["F16", "BF16"] {
            let format = gguf_blocks::registry::by_name(name).expect("registered");
            let (encode, decode) = (
                format.encoder(Cpu::best()).expect("encoder"),
                format.decode.expect("decoder"),
            );
            let limit = overflow_limit(format).expect("a limit");
            for (value, finite) in [(limit, false), (f32::from_bits(limit.to_bits() - 1), true)] {
                let (mut bytes, mut back) = ([0; 2], [0.0]);
                encode(&[value], Importance::None, &mut bytes);
                decode(&bytes, &mut back);
                assert_eq!(back[0].is_finite(), finite, "{name} {value}");
            }
        }
    }
}
