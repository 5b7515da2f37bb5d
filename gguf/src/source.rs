//! Where bytes come from.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Result;

/// Random access to the bytes of a file. Implementations: pread, mapped file, bytes in memory.
pub trait Source: Send + Sync + std::fmt::Debug {
    /// Bytes in all.
    fn len(&self) -> u64;
    /// The name for messages.
    fn path(&self) -> &Path;
    /// Fills `buf` from position `at`; an error if the source ends before.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<()>;
    /// Bytes `at .. at + len`, borrowed where the source is in memory or mapped.
    fn slice(&self, at: u64, len: usize) -> Result<Cow<'_, [u8]>>;
    /// All bytes, where the source is in memory or mapped.
    fn bytes(&self) -> Option<&[u8]> {
        None
    }
}

/// Opens a file for reads by position.
pub fn open(_path: &Path) -> Result<Arc<dyn Source>> {
    todo!()
}

/// Maps a file read-only.
pub fn map(_path: &Path) -> Result<Arc<dyn Source>> {
    todo!()
}

/// Bytes in memory under a name.
pub fn bytes(_name: PathBuf, _bytes: Vec<u8>) -> Arc<dyn Source> {
    todo!()
}
