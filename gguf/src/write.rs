//! The sequential writer, driven by a layout.

use std::io::Write;

use crate::{Layout, Result};

/// Writes a file front to back: the head at once, then each tensor's bytes in order, in pieces of any size;
/// padding is inserted between tensors.
#[derive(Debug)]
pub struct Writer<'a, W> {
    out: W,
    layout: &'a Layout,
}

impl<'a, W: Write> Writer<'a, W> {
    /// Writes the head.
    pub fn new(_out: W, _layout: &'a Layout) -> Result<Self> {
        todo!()
    }

    /// Appends data of the current tensor; moves on to the next when this one is complete. A piece must not
    /// cross from one tensor to the next.
    pub fn write(&mut self, _bytes: &[u8]) -> Result<()> {
        todo!()
    }

    /// Checks that every tensor is complete and returns the output.
    pub fn finish(self) -> Result<W> {
        todo!()
    }
}
