//! Reads, encodes and writes in slabs of rows, so that memory does not depend on the size of tensors.
//!
//! Three slabs are in flight: one is being encoded on the pool while the one before it is written and the one
//! after it is read. Rows are independent, and each is encoded by one task, so the bytes do not depend on the
//! number of threads or on where slabs end.

use std::io::Write;

use gguf::{GgufFile, Writer};
use gguf_blocks::{Cpu, Importance, Unit};
use gguf_cli::{Failure, Result};
use rayon::prelude::*;

use crate::guide::Guide;
use crate::plan::{Coverage, Plan, Step};

/// Bytes of a slab in the source or the output, whichever is larger; at least one row.
const SLAB_BYTES: u64 = 8 << 20;

/// Elements that make a task worth handing to another thread.
const TASK_ELEMS: usize = 16 << 10;

/// A stretch of rows of one tensor.
struct Slab<'a> {
    step: &'a Step,
    /// Counted over all matrices of the tensor.
    first_row: u64,
    n_rows: usize,
    raw: Vec<u8>,
    encoded: Vec<u8>,
}

/// A place where a value or a block is not sound.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fault {
    row: u64,
    col: usize,
    what: String,
}

/// Sizes of one step's rows.
#[derive(Clone, Copy)]
struct RowSizes {
    n_cols: usize,
    from: usize,
    to: usize,
    /// Rows that are read together because the source has them interleaved, or as one with a trailer.
    unit: usize,
}

impl RowSizes {
    fn new(step: &Step) -> Result<Self> {
        let n_cols = step.source.shape.n_cols();
        let of = |f: &gguf_blocks::Format| {
            f.geometry
                .row_bytes(n_cols)
                .and_then(|n| usize::try_from(n).ok())
                .ok_or_else(|| {
                    let name = &step.source.name;
                    Failure::Input(format!(
                        "tensor `{name}`: rows of {n_cols} elements are not whole blocks of `{}`",
                        f.name
                    ))
                })
        };
        let geometry = step.from.geometry;
        if step.source.shape.n_bytes(step.from) != Some(step.source.n_bytes) {
            return Err(Failure::Input(format!(
                "tensor `{}`: expected whole groups of {} interleaved rows of `{}`, found shape {}",
                step.source.name, geometry.interleave, step.from.name, step.source.shape
            )));
        }
        Ok(Self {
            n_cols: n_cols as usize,
            from: of(step.from)?,
            to: of(step.to)?,
            unit: match geometry.unit() {
                Unit::Block | Unit::Rows => geometry.interleave,
                Unit::Tensor => step.source.shape.n_rows().max(1) as usize,
            },
        })
    }

    fn rows_per_slab(&self) -> u64 {
        let rows = (SLAB_BYTES / self.from.max(self.to).max(1) as u64).max(1);
        rows.next_multiple_of(self.unit as u64)
    }

    fn rows_per_task(&self) -> usize {
        TASK_ELEMS
            .div_ceil(self.n_cols.max(1))
            .next_multiple_of(self.unit)
    }
}

/// Runs a plan into a writer. `progress` is called with source bytes done.
pub(crate) fn run<W: Write + Send>(
    file: &GgufFile,
    plan: &Plan,
    guide: Option<&Guide>,
    writer: &mut Writer<'_, W>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let mut slabs = plan.steps.iter().flat_map(slabs_of);
    let mut current = slabs.next().map(|s| read(file, s?, Vec::new())).transpose()?;
    let mut done: Option<Slab<'_>> = None;
    // The importance of one tensor at a time; slabs of a tensor come one after another.
    let mut importance = TensorImportance::default();
    let mut spare = (Vec::new(), Vec::new());
    while let Some(mut slab) = current.take() {
        importance.load(slab.step, guide);
        slab.encoded = std::mem::take(&mut spare.1);
        let raw_buffer = std::mem::take(&mut spare.0);
        let previous = done.take();
        let (encoded, (written, next)) = rayon::join(
            || encode(&mut slab, &importance.values),
            || {
                let written = previous.as_ref().map(|s| write(s, writer)).transpose();
                (
                    written,
                    slabs.next().map(|s| read(file, s?, raw_buffer)).transpose(),
                )
            },
        );
        written?;
        encoded?;
        progress(slab.raw.len() as u64);
        if let Some(s) = previous {
            spare = (s.raw, s.encoded);
        }
        done = Some(slab);
        current = next?;
    }
    done.as_ref().map(|s| write(s, writer)).transpose()?;
    Ok(())
}

/// The slabs of one tensor: step, first row, number of rows.
fn slabs_of(step: &Step) -> impl Iterator<Item = Result<(&Step, u64, u64)>> {
    let n_rows = if step.source.shape.n_elems() == 0 {
        0
    } else {
        step.source.shape.n_rows()
    };
    let (per_slab, fault) = match RowSizes::new(step) {
        Ok(sizes) => (sizes.rows_per_slab(), None),
        Err(e) => (n_rows.max(1), Some(e)),
    };
    let starts = (0..n_rows).step_by(usize::try_from(per_slab).unwrap_or(usize::MAX));
    let slabs = starts.map(move |row| Ok((step, row, per_slab.min(n_rows - row))));
    fault.map(Err).into_iter().chain(slabs)
}

fn read<'a>(file: &GgufFile, slab: (&'a Step, u64, u64), mut raw: Vec<u8>) -> Result<Slab<'a>> {
    let (step, first_row, n_rows) = slab;
    let sizes = RowSizes::new(step)?;
    let (row, n_rows) = (sizes.from, n_rows as usize);
    raw.resize(row * n_rows + step.from.geometry.tensor_trailer_bytes, 0);
    file.read_tensor(&step.source, first_row * row as u64, &mut raw)?;
    Ok(Slab {
        step,
        first_row,
        n_rows,
        raw,
        encoded: Vec::new(),
    })
}

fn write<W: Write>(slab: &Slab<'_>, writer: &mut Writer<'_, W>) -> Result<()> {
    writer.write(if slab.step.is_copy() {
        &slab.raw
    } else {
        &slab.encoded
    })?;
    Ok(())
}

/// The importance of the tensor in work.
#[derive(Default)]
struct TensorImportance {
    tensor: String,
    /// One a column of each matrix, or nothing.
    values: Vec<f32>,
}

impl TensorImportance {
    fn load(&mut self, step: &Step, guide: Option<&Guide>) {
        if self.tensor == step.source.name {
            return;
        }
        self.tensor.clone_from(&step.source.name);
        let used = matches!(step.coverage, Coverage::Share(_));
        self.values = guide
            .filter(|_| used)
            .and_then(|g| g.importance(&self.tensor))
            .unwrap_or_default();
    }
}

/// Fills `encoded` from `raw`; only checks it where bytes are copied.
fn encode(slab: &mut Slab<'_>, importance: &[f32]) -> Result<()> {
    let step = slab.step;
    let sizes = RowSizes::new(step)?;
    let n_rows = slab.n_rows;
    let per_task = sizes.rows_per_task();
    let first_row = slab.first_row;
    let first_of = |task: usize| first_row + (task * per_task) as u64;
    let trailer = step.from.geometry.tensor_trailer_bytes;
    let raw = slab.raw.par_chunks(per_task * sizes.from + trailer);
    let fault = if step.is_copy() {
        raw.enumerate()
            .filter_map(|(i, rows)| check(rows, step.to, sizes, first_of(i)))
            .min()
    } else {
        slab.encoded.resize(n_rows * sizes.to, 0);
        let out = slab.encoded.par_chunks_mut(per_task * sizes.to);
        raw.zip(out)
            .enumerate()
            .map_init(
                || vec![0.0; sizes.unit * sizes.n_cols],
                |buf, (i, (raw, out))| encode_rows(step, sizes, first_of(i), raw, importance, buf, out),
            )
            .filter_map(std::result::Result::err)
            .min()
    };
    fault.map_or(Ok(()), |f| Err(describe(step, &f)))
}

fn encode_rows(
    step: &Step,
    sizes: RowSizes,
    first_row: u64,
    raw: &[u8],
    importance: &[f32],
    buf: &mut [f32],
    out: &mut [u8],
) -> std::result::Result<(), Fault> {
    for (unit, (raw, out)) in raw
        .chunks_exact(sizes.unit * sizes.from)
        .zip(out.chunks_exact_mut(sizes.unit * sizes.to))
        .enumerate()
    {
        step.from
            .decode_rows(sizes.n_cols, raw, buf)
            .expect("the plan refuses types without a decoder");
        let rows = buf.chunks(sizes.n_cols).zip(out.chunks_mut(sizes.to));
        for (i, (values, out)) in rows.enumerate() {
            let row = first_row + (unit * sizes.unit + i) as u64;
            encode_row(step, sizes, row, values, importance, out)?;
        }
    }
    Ok(())
}

fn encode_row(
    step: &Step,
    sizes: RowSizes,
    row: u64,
    values: &[f32],
    importance: &[f32],
    out: &mut [u8],
) -> std::result::Result<(), Fault> {
    let encode = step
        .to
        .encoder(Cpu::best())
        .expect("the plan refuses types without an encoder");
    if let Some(col) = values.iter().position(|v| !v.is_finite()) {
        return Err(Fault {
            row,
            col,
            what: format!("expected a finite value, found {}", values[col]),
        });
    }
    let shape = &step.source.shape;
    let matrix = (row / shape.dim(1) % shape.dim(2)) as usize;
    let weights = match importance {
        [] => Importance::None,
        all => Importance::Column(&all[matrix * sizes.n_cols..][..sizes.n_cols]),
    };
    encode(values, weights, out);
    match check(out, step.to, sizes, row) {
        Some(fault) => Err(too_large(&fault, step.to, values)),
        None => Ok(()),
    }
}

/// The first unsound block of whole rows.
fn check(rows: &[u8], format: &gguf_blocks::Format, sizes: RowSizes, first: u64) -> Option<Fault> {
    let place = format.check_rows(sizes.n_cols, rows)?;
    Some(Fault {
        row: first + place.row as u64,
        col: place.col,
        what: format!(
            "expected a sound block of `{}`, found one with a value or scale that is not finite; the source is damaged",
            format.name
        ),
    })
}

/// The fault of a block that was sound before it was encoded: its values are beyond what the type holds.
fn too_large(fault: &Fault, format: &gguf_blocks::Format, row: &[f32]) -> Fault {
    let block = row.iter().skip(fault.col).take(format.geometry.block_elems);
    let (at, largest) = block
        .enumerate()
        .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
        .map_or((0, f32::NAN), |(i, v)| (i, *v));
    Fault {
        col: fault.col + at,
        what: format!(
            "expected a value that a block of `{}` can hold, found {largest:e}, which is too large; choose a type with a \
             wider range, such as `BF16`",
            format.name
        ),
        row: fault.row,
    }
}

fn describe(step: &Step, fault: &Fault) -> Failure {
    let shape = &step.source.shape;
    let (row, matrix) = (fault.row % shape.dim(1).max(1), fault.row / shape.dim(1).max(1));
    let matrix = if shape.dims().len() > 2 {
        format!("matrix {matrix}, ")
    } else {
        String::new()
    };
    Failure::Input(format!(
        "tensor `{}`, {matrix}row {row}, column {}: {}",
        step.source.name, fault.col, fault.what
    ))
}
