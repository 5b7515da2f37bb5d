//! A file mapped read-only: data is borrowed from the page cache.
//!
//! The mapping stays valid as long as nobody shortens the file under it. Outputs of this suite never do: they
//! are written beside their name and renamed ([`crate::atomic`]), which leaves a mapped file its pages. Against
//! other programs the file's identity and length are recorded at opening and compared again on each access
//! through [`Source`], so that a file that was rewritten in place is refused instead of being misread. Bytes that were
//! borrowed before and are gone since ([`Source::bytes`]) raise `SIGBUS`, of which [`crate::fault`] makes an error.

#![expect(unsafe_code, reason = "a mapping can only be made by an unsafe call")]

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::{Advice, Mmap};

use super::{Identity, Source, bytes, memory};
use crate::fault::Mapping;
use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct MappedSource {
    /// In front of what it lists.
    _listed: Mapping,
    map: Mmap,
    file: File,
    path: PathBuf,
    identity: Identity,
}

impl MappedSource {
    /// Maps a file that is not empty.
    pub(super) fn new(path: &Path, file: File, identity: Identity) -> Result<Self> {
        // SAFETY: the map is read-only and this value keeps the file open as long as the map lives. The bytes
        // change only if another program rewrites the file in place, which the suite itself never does
        // (outputs are renamed into place) and which `unchanged` detects before each access through `Source`. Pages
        // that are gone are no bytes of anything else: reading them raises a signal.
        let map = unsafe { Mmap::map(&file) };
        let map = map.map_err(|source| Error::Io {
            action: "map",
            path: path.to_owned(),
            source,
        })?;
        // Read for the first time, the file then lies in huge pages where its system has such. A hint.
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        let mapped = Self {
            _listed: Mapping::new(&map, &file, path),
            map,
            file,
            path: path.to_owned(),
            identity,
        };
        mapped.unchanged()?;
        Ok(mapped)
    }

    /// Refuses a file that is no longer the one that was mapped.
    fn unchanged(&self) -> Result<()> {
        let io = |source| Error::Io {
            action: "read",
            path: self.path.clone(),
            source,
        };
        let now = Identity::of(&self.file.metadata().map_err(io)?);
        if now != self.identity || now.len != self.map.len() as u64 {
            return Err(super::changed(&self.path, self.identity.len, now.len));
        }
        Ok(())
    }

    /// Tells the system about a range, as far as it lies in the file.
    fn advise(&self, advice: Advice, at: u64, len: u64) -> std::io::Result<()> {
        let all = self.map.len();
        let start = usize::try_from(at).map_or(all, |at| at.min(all));
        let len = usize::try_from(len).map_or(all, |len| len.min(all - start));
        self.map.advise_range(advice, start, len)
    }
}

impl Source for MappedSource {
    fn len(&self) -> u64 {
        self.identity.len
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.unchanged()?;
        buf.copy_from_slice(bytes::range(self, &self.map, at, buf.len())?);
        Ok(())
    }

    fn slice(&self, at: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.unchanged()?;
        Ok(Cow::Borrowed(bytes::range(self, &self.map, at, len)?))
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.map)
    }

    fn read_ahead(&self, at: u64, len: u64) {
        let _ = self.advise(Advice::WillNeed, at, len);
    }

    fn fetch(&self, at: u64, len: u64) {
        #[cfg(target_os = "linux")]
        if self.advise(Advice::PopulateRead, at, len).is_ok() {
            return;
        }
        // Kernels before 5.14 only begin to read.
        self.read_ahead(at, len);
    }

    fn lock(&self) -> Result<()> {
        self.unchanged()?;
        memory::lock(&self.map, &self.path)
    }
}
