//! Where bytes come from: a file read by position, a mapped file, bytes in memory, or a file on a server. Other crates
//! have sources that compute their bytes as they are read.
//!
//! All of them answer the same questions, so that the parser and everything behind it is written once. A source
//! knows its length from the moment it was opened and refuses reads beyond it; nothing is ever allocated for
//! a range that does not exist.

mod bytes;
mod file;
#[cfg(feature = "http")]
mod http;
mod memory;
mod mmap;

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Error, Result};
pub use memory::Memory;

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
    /// The open file, where there is one: the kernel can copy from it.
    fn file(&self) -> Option<&File> {
        None
    }
    /// Says that bytes `at .. at + len` will be wanted soon, so that they are fetched beside other work. A hint:
    /// it may do nothing, and it does not fail.
    fn read_ahead(&self, at: u64, len: u64) {
        let _ = (at, len);
    }
    /// Brings bytes `at .. at + len` into memory now, as far as the system can, and may wait for them. A hint too.
    fn fetch(&self, at: u64, len: u64) {
        self.read_ahead(at, len);
    }
    /// Says that bytes `at .. at + len` will not be wanted again for long, so that memory of the system that holds a copy
    /// of them can be used for others. A hint, as [`Source::read_ahead`].
    fn forget(&self, at: u64, len: u64) {
        let _ = (at, len);
    }
    /// Keeps all bytes in physical memory as long as the source lives.
    ///
    /// # Errors
    /// A source that is not in memory, or a system that does not allow as much.
    fn lock(&self) -> Result<()> {
        Err(Error::Io {
            action: "lock",
            path: self.path().to_owned(),
            source: std::io::Error::other("only files that are mapped or read into memory can be locked"),
        })
    }
    /// The files whose bytes these are: the file itself, or those that the bytes are computed from.
    fn inputs(&self) -> Vec<PathBuf> {
        vec![self.path().to_owned()]
    }
    /// How bytes `at .. at + len` are best read.
    fn advice(&self, at: u64, len: u64) -> ReadAdvice {
        let _ = (at, len);
        ReadAdvice::default()
    }
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How a range of a source is best read. Both are 0 where bytes are read as they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAdvice {
    /// Bytes to read at once: fewer take longer each.
    pub at_once: u64,
    /// Bytes of memory that one read of the whole range takes besides those that it fills.
    pub memory: u64,
}

/// Whether a path is the address of a file on a server, which feature `http` reads by ranges.
pub fn is_url(path: &Path) -> bool {
    path.to_str()
        .is_some_and(|s| s.starts_with("http://") || s.starts_with("https://"))
}

/// Opens a file, or an address (feature `http`), for reads by position.
pub fn open(path: &Path) -> Result<Arc<dyn Source>> {
    if is_url(path) {
        return open_url(path);
    }
    let (file, identity) = open_regular(path)?;
    Ok(Arc::new(file::FileSource::new(path, file, identity)))
}

#[cfg(feature = "http")]
fn open_url(path: &Path) -> Result<Arc<dyn Source>> {
    Ok(Arc::new(http::HttpSource::new(path)?))
}

#[cfg(not(feature = "http"))]
fn open_url(path: &Path) -> Result<Arc<dyn Source>> {
    Err(Error::Io {
        action: "open",
        path: path.to_owned(),
        source: std::io::Error::other(
            "this program was built without feature `http`: download the file first",
        ),
    })
}

/// Maps a file read-only.
pub fn map(path: &Path) -> Result<Arc<dyn Source>> {
    if is_url(path) {
        return Err(Error::Io {
            action: "map",
            path: path.to_owned(),
            source: std::io::Error::other("a file on a server cannot be mapped: download it first"),
        });
    }
    let (file, identity) = open_regular(path)?;
    if identity.len == 0 {
        return Ok(bytes(path.to_owned(), Vec::new()));
    }
    Ok(Arc::new(mmap::MappedSource::new(path, file, identity)?))
}

/// Bytes in memory under a name.
pub fn bytes(name: PathBuf, bytes: Vec<u8>) -> Arc<dyn Source> {
    Arc::new(bytes::BytesSource::new(name, Arc::new(bytes)))
}

/// Bytes in memory that someone else has too.
pub(crate) fn shared(name: PathBuf, bytes: Arc<Vec<u8>>) -> Arc<dyn Source> {
    Arc::new(bytes::BytesSource::new(name, bytes))
}

/// What tells one state of a file from another: device, inode, length and time of the last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    dev: u64,
    ino: u64,
    len: u64,
    mtime: (i64, i64),
}

impl Identity {
    fn of(meta: &Metadata) -> Self {
        Self {
            dev: meta.dev(),
            ino: meta.ino(),
            len: meta.len(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}

/// Opens a regular file. The check stands in front of the open, because opening a pipe would wait for a writer.
fn open_regular(path: &Path) -> Result<(File, Identity)> {
    let io = |source| Error::Io {
        action: "open",
        path: path.to_owned(),
        source,
    };
    let meta = std::fs::metadata(path).map_err(io)?;
    if meta.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    if !meta.is_file() {
        return Err(io(std::io::Error::other(
            "not a regular file; copy the data to a file first",
        )));
    }
    let file = File::open(path).map_err(io)?;
    let identity = Identity::of(&file.metadata().map_err(io)?);
    Ok((file, identity))
}

/// The error for a file that is not what it was when it was opened, by the bytes that it had and has.
fn changed(path: &Path, had: u64, has: u64) -> Error {
    let what = format!(
        "the file changed while it was in use: it had {had} bytes, now {has}; start again when nothing writes to it"
    );
    Error::malformed(path, had.min(has), what)
}

/// Refuses a range that is not wholly inside a source of `len` bytes.
///
/// # Errors
/// A range that ends behind the source, by its place and length.
pub fn check_range(path: &Path, len: u64, at: u64, n: usize) -> Result<()> {
    let left = len.saturating_sub(at);
    if u64::try_from(n).is_ok_and(|n| n <= left) {
        return Ok(());
    }
    Err(Error::malformed(
        path,
        at,
        format!("expected {n} bytes here, found {left} (the file has {len})"),
    ))
}
