//! Copies of tensor data, file to file, in pieces.

use std::io::Write;
use std::ops::Range;

use crate::atomic::AtomicFile;
use crate::source::Source;
use crate::{Error, GgufFile, Layout, Result};

/// Bytes that are in memory at a time.
pub(crate) const PIECE: u64 = 1 << 20;

/// Bytes that the kernel is asked to copy at a time: little enough for progress to move.
const KERNEL_PIECE: u64 = 64 << 20;

/// Writes a file by its layout; tensor `first` of `file` and those behind it are the layout's tensors. `on` hears of
/// the bytes as they are written.
pub(crate) fn write(
    file: &GgufFile,
    first: usize,
    layout: &Layout,
    out: &mut AtomicFile,
    on: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    put(out, &layout.head)?;
    on(layout.head.len() as u64)?;
    for (tensor, planned) in file.tensors[first..].iter().zip(&layout.tensors) {
        let source = file.part(tensor).source();
        range(source, file.tensor_range(tensor), out, on)?;
        let padding = layout.padding(planned);
        put(out, &zeros(padding))?;
        on(padding)?;
    }
    Ok(())
}

/// Padding.
pub(crate) fn zeros(n: u64) -> Vec<u8> {
    vec![0; usize::try_from(n).expect("less than the alignment")]
}

/// Appends a range of a source, by the kernel if it is a file.
pub(crate) fn range(
    source: &dyn Source,
    range: Range<u64>,
    out: &mut AtomicFile,
    on: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut at = range.start;
    if let Some(file) = source.file() {
        while range.end - at >= PIECE {
            let piece = at..range.end.min(at + KERNEL_PIECE);
            let n = out.copy_from(file, &piece)?;
            on(n)?;
            at += n;
            if at < piece.end {
                break;
            }
        }
    }
    pieces(source, at..range.end, |bytes| {
        put(out, bytes)?;
        on(bytes.len() as u64)
    })
}

/// Reads a range of a source in order.
pub(crate) fn pieces(
    source: &dyn Source,
    range: Range<u64>,
    mut f: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let n = (range.end - at).min(PIECE);
        let n = usize::try_from(n).expect("at most PIECE");
        f(&source.slice(at, n)?)?;
        at += n as u64;
    }
    Ok(())
}

/// Writes to an output.
pub(crate) fn put(out: &mut AtomicFile, bytes: &[u8]) -> Result<()> {
    let written = out.write_all(bytes);
    written.map_err(|e| Error::from_write(e, out.path()))
}
