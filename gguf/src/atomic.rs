//! Outputs that appear under their name only when complete.

use std::io::Write;
use std::path::Path;

use crate::Result;

/// A file being written beside its final name. Dropped without [`AtomicFile::commit`] it vanishes.
#[derive(Debug)]
pub struct AtomicFile {}

impl AtomicFile {
    /// Starts an output. Refuses a missing folder, an output that is one of `inputs` (by path, symbolic or
    /// hard link), an existing output unless `force`, and, if `n_bytes` is known, too little free space.
    pub fn create(_path: &Path, _force: bool, _inputs: &[&Path], _n_bytes: Option<u64>) -> Result<Self> {
        todo!()
    }

    /// Flushes to disk and renames to the final name.
    pub fn commit(self) -> Result<()> {
        todo!()
    }
}

impl Write for AtomicFile {
    fn write(&mut self, _buf: &[u8]) -> std::io::Result<usize> {
        todo!()
    }
    fn flush(&mut self) -> std::io::Result<()> {
        todo!()
    }
}
