//! A file read by position (`pread`): no shared cursor, so threads read at the same time.

use std::borrow::Cow;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use super::{Identity, Source, changed, check_range};
use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct FileSource {
    file: File,
    path: PathBuf,
    len: u64,
}

impl FileSource {
    pub(super) fn new(path: &Path, file: File, identity: Identity) -> Self {
        Self {
            file,
            path: path.to_owned(),
            len: identity.len,
        }
    }
}

impl FileSource {
    /// Tells the system about a range. Only a hint: not all file systems take it.
    fn advise(&self, at: u64, len: u64, advice: Advice) {
        if let Some(len) = NonZeroU64::new(len.min(self.len.saturating_sub(at))) {
            let _ = fadvise(&self.file, at, Some(len), advice);
        }
    }
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        check_range(&self.path, self.len, at, buf.len())?;
        self.file.read_exact_at(buf, at).map_err(|source| {
            // The range was inside the file when that was opened.
            match self.file.metadata() {
                Ok(now) if source.kind() == std::io::ErrorKind::UnexpectedEof => {
                    changed(&self.path, self.len, now.len())
                }
                _ => Error::Io {
                    action: "read",
                    path: self.path.clone(),
                    source,
                },
            }
        })
    }

    fn slice(&self, at: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        check_range(&self.path, self.len, at, len)?;
        let mut buf = vec![0; len];
        self.read_at(at, &mut buf)?;
        Ok(Cow::Owned(buf))
    }

    fn read_ahead(&self, at: u64, len: u64) {
        self.advise(at, len, Advice::WillNeed);
    }

    fn forget(&self, at: u64, len: u64) {
        self.advise(at, len, Advice::DontNeed);
    }
}
