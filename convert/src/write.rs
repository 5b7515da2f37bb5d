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
use crate::map::Piece;
use crate::plan::{Plan, PlannedTensor};

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

/// A stretch of a tensor that is converted at once.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    tensor: &'a PlannedTensor,
    piece: Piece,
    /// First element, counted in the tensor.
    first: u64,
    /// First element, counted in the piece.
    first_in_piece: u64,
    n_elems: u64,
}

/// All chunks in the output's order.
fn chunks(plan: &Plan) -> impl Iterator<Item = Chunk<'_>> {
    plan.tensors.iter().flat_map(|tensor| {
        let starts = tensor.pieces.iter().scan(0, |end, piece| {
            let start = *end;
            *end += piece.n_elems;
            Some((start, *piece))
        });
        starts.flat_map(move |(start, piece)| {
            (0..piece.n_elems.div_ceil(CHUNK_ELEMS)).map(move |i| {
                let first_in_piece = i * CHUNK_ELEMS;
                let n_elems = CHUNK_ELEMS.min(piece.n_elems - first_in_piece);
                Chunk {
                    tensor,
                    piece,
                    first: start + first_in_piece,
                    first_in_piece,
                    n_elems,
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
    /// Bytes of sources that are not the output's.
    raw: Vec<u8>,
    values: Vec<f32>,
}

/// A chunk with its parts of the buffers.
struct Work<'a, 'b> {
    chunk: &'a Chunk<'a>,
    raw: &'b mut [u8],
    values: &'b mut [f32],
    out: &'b mut [u8],
}

impl<'a> Batch<'a> {
    /// Takes the next chunks: about a full one for every thread, in any number of smaller ones.
    fn take(&mut self, chunks: &mut std::iter::Peekable<impl Iterator<Item = Chunk<'a>>>, n_threads: usize) {
        self.chunks.clear();
        let mut room = CHUNK_ELEMS * n_threads as u64;
        while let Some(chunk) = chunks.next_if(|c| c.n_elems <= room) {
            room -= chunk.n_elems;
            self.chunks.push(chunk);
        }
    }

    /// Reads and converts every chunk. Of several errors the first chunk's counts.
    fn make(&mut self, plan: &Plan, scratch: &mut Scratch) -> Result<()> {
        const WHOLE: &str = "the buffers are as long as the chunks together";
        let sizes: Vec<_> = self.chunks.iter().map(Chunk::sizes).collect();
        let total = |part: fn(&Sizes) -> usize| sizes.iter().map(part).sum();
        self.out.resize(total(|s| s.out), 0);
        scratch.raw.resize(total(|s| s.raw), 0);
        scratch.values.resize(total(|s| s.values), 0.0);

        let (mut raw, mut values, mut out) =
            (&mut scratch.raw[..], &mut scratch.values[..], &mut self.out[..]);
        let mut work = Vec::with_capacity(sizes.len());
        for (chunk, size) in self.chunks.iter().zip(&sizes) {
            work.push(Work {
                chunk,
                raw: raw.split_off_mut(..size.raw).expect(WHOLE),
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
    raw: usize,
    values: usize,
    out: usize,
}

impl Chunk<'_> {
    fn source_format(&self) -> &'static Format {
        self.piece.dtype.format().expect("the plan holds weights only")
    }

    /// Whether the source's bytes are the output's.
    fn is_copy(&self) -> bool {
        self.source_format().id == self.tensor.format.id
    }

    fn sizes(&self) -> Sizes {
        let out = n_bytes(self.tensor.format, self.n_elems);
        if self.is_copy() {
            Sizes {
                raw: 0,
                values: 0,
                out,
            }
        } else {
            Sizes {
                raw: n_bytes(self.source_format(), self.n_elems),
                values: self.n_elems as usize,
                out,
            }
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
        let format = self.source_format();
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
        format!("tensor `{}` element {}", self.tensor.name, self.first + i)
    }
}

impl Work<'_, '_> {
    fn run(self, plan: &Plan) -> Result<()> {
        let chunk = self.chunk;
        let source = &plan.files[chunk.piece.file];
        let at = chunk.piece.at + chunk.first_in_piece * chunk.piece.dtype.bytes();
        if chunk.is_copy() {
            source.read_at(at, self.out)?;
            return chunk.check_copy(self.out);
        }
        let (from, to) = (chunk.source_format(), chunk.tensor.format);
        let codec = from.decode.zip(to.encoder(Cpu::best()));
        let (decode, encode) = codec
            .ok_or_else(|| Error::unsupported(format!("from {} to {}", from.name, to.name), "no codec"))?;
        source.read_at(at, self.raw)?;
        decode(self.raw, self.values);
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
