//! Whole files in memory of their own: aligned to pages, and returned to the system when dropped.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Mmap, MmapMut};
use rustix::process::{Resource, getrlimit};

use super::{Source, bytes};
use crate::{Error, Result};

/// Memory for the bytes of a file, to be filled and then used as a [`Source`].
#[derive(Debug)]
pub struct Memory {
    map: MmapMut,
    path: PathBuf,
}

impl Memory {
    /// `len` zero bytes, which take physical memory when they are written. The name is for messages.
    ///
    /// # Errors
    /// A length that cannot be addressed or had.
    pub fn new(name: &Path, len: u64) -> Result<Self> {
        let io = |source| Error::Io {
            action: "take memory for",
            path: name.to_owned(),
            source,
        };
        let n = usize::try_from(len).map_err(|_| io(std::io::ErrorKind::OutOfMemory.into()))?;
        let map = MmapMut::map_anon(n).map_err(io)?;
        // Fewer entries in the tables of pages; without it nothing else changes.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self {
            map,
            path: name.to_owned(),
        })
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// What was filled in, from now on read-only.
    ///
    /// # Errors
    /// What the system says against it.
    pub fn into_source(self) -> Result<Arc<dyn Source>> {
        let Self { map, path } = self;
        match map.make_read_only() {
            Ok(map) => Ok(Arc::new(MemorySource { map, path })),
            Err(source) => Err(Error::Io {
                action: "protect",
                path,
                source,
            }),
        }
    }
}

#[derive(Debug)]
struct MemorySource {
    map: Mmap,
    path: PathBuf,
}

impl Source for MemorySource {
    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(bytes::range(self, &self.map, at, buf.len())?);
        Ok(())
    }

    fn slice(&self, at: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        Ok(Cow::Borrowed(bytes::range(self, &self.map, at, len)?))
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.map)
    }

    fn lock(&self) -> Result<()> {
        lock(&self.map, &self.path)
    }
}

/// Locks a mapping.
pub(super) fn lock(map: &Mmap, path: &Path) -> Result<()> {
    map.lock().map_err(|source| {
        let limit = match getrlimit(Resource::Memlock).current {
            Some(n) => format!("the limit is {} KiB", n / 1024),
            None => "there is no limit for this user".to_owned(),
        };
        let what = format!(
            "{source}: {} KiB do not fit, {limit}; raise it (`ulimit -l`) or leave out the lock",
            map.len().div_ceil(1024)
        );
        Error::Io {
            action: "lock",
            path: path.to_owned(),
            source: std::io::Error::new(source.kind(), what),
        }
    })
}
