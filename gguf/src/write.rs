//! The sequential writer, driven by a layout.

use std::io::Write;
use std::path::Path;

use crate::{Error, Layout, Result, TensorInfo};

/// Writes a file front to back: the head at once, then each tensor's bytes in order, in pieces of any size;
/// padding is inserted between tensors.
#[derive(Debug)]
pub struct Writer<'a, W> {
    out: W,
    layout: &'a Layout,
    /// The tensor that gets the next bytes.
    index: usize,
    /// Bytes of that tensor written so far.
    written: u64,
}

impl<'a, W: Write> Writer<'a, W> {
    /// Writes the head.
    pub fn new(mut out: W, layout: &'a Layout) -> Result<Self> {
        put(&mut out, &layout.head)?;
        let mut writer = Self {
            out,
            layout,
            index: 0,
            written: 0,
        };
        writer.pass_complete()?;
        Ok(writer)
    }

    /// Index in the layout of the tensor that gets the next bytes; the number of tensors when all are
    /// complete.
    pub fn tensor_index(&self) -> usize {
        self.index
    }

    /// Appends data of the current tensor; moves on to the next when this one is complete. A piece must not
    /// cross from one tensor to the next.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let Some(tensor) = self.current() else {
            let what = format!("{} bytes too many: every tensor is complete", bytes.len());
            return Err(Error::Output(what.into()));
        };
        let left = tensor.n_bytes - self.written;
        if bytes.len() as u64 > left {
            let what = format!(
                "too many bytes for tensor `{}`: expected {left} more of {}, found {}",
                tensor.name,
                tensor.n_bytes,
                bytes.len()
            );
            return Err(Error::Output(what.into()));
        }
        put(&mut self.out, bytes)?;
        self.written += bytes.len() as u64;
        self.pass_complete()
    }

    /// Checks that every tensor is complete and returns the output.
    pub fn finish(self) -> Result<W> {
        if let Some(tensor) = self.current() {
            let what = format!(
                "too few bytes for tensor `{}`: expected {}, found {}",
                tensor.name, tensor.n_bytes, self.written
            );
            return Err(Error::Output(what.into()));
        }
        Ok(self.out)
    }

    fn current(&self) -> Option<&'a TensorInfo> {
        self.layout.tensors.get(self.index)
    }

    /// Pads and passes the current tensor if it is complete, and any without bytes behind it.
    fn pass_complete(&mut self) -> Result<()> {
        while let Some(tensor) = self.current()
            && self.written == tensor.n_bytes
        {
            let n = usize::try_from(self.layout.padding(tensor)).expect("less than the alignment");
            put(&mut self.out, &vec![0; n])?;
            self.index += 1;
            self.written = 0;
        }
        Ok(())
    }
}

fn put(out: &mut impl Write, bytes: &[u8]) -> Result<()> {
    out.write_all(bytes)
        .map_err(|e| Error::from_write(e, Path::new("output")))
}
