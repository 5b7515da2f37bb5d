//! Bytes in memory.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Source, check_range};
use crate::Result;

#[derive(Debug)]
pub(super) struct BytesSource {
    name: PathBuf,
    bytes: Arc<Vec<u8>>,
}

impl BytesSource {
    pub(super) fn new(name: PathBuf, bytes: Arc<Vec<u8>>) -> Self {
        Self { name, bytes }
    }
}

impl Source for BytesSource {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn path(&self) -> &Path {
        &self.name
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(range(self, &self.bytes, at, buf.len())?);
        Ok(())
    }

    fn slice(&self, at: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        Ok(Cow::Borrowed(range(self, &self.bytes, at, len)?))
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }
}

/// `bytes[at .. at + len]`, which are all the bytes of `source`; an error if they end before.
pub(super) fn range<'a>(source: &dyn Source, bytes: &'a [u8], at: u64, len: usize) -> Result<&'a [u8]> {
    check_range(source.path(), bytes.len() as u64, at, len)?;
    let start = usize::try_from(at).expect("a position inside a slice");
    Ok(&bytes[start..start + len])
}
