//! The start of a model: with its pages dropped from memory, or as they are.

use std::path::{Path, PathBuf};

use gguf::GgufFile;
use gguf_cli::{Failure, Result};
use rustix::fs::{Advice, fadvise, fdatasync};

/// Seconds of the first things that happen with a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// Whether the pages were dropped before.
    pub(super) cold: bool,
    /// Opening and binding.
    pub(super) open: f64,
    /// Memory for cache and scratch.
    pub(super) session: f64,
    /// The first prompt, and its tokens.
    pub(super) prompt: Option<(usize, f64)>,
    /// One token behind it.
    pub(super) token: Option<f64>,
    /// Bytes that came from disks meanwhile; `None` where the system does not say.
    pub(super) disk: Option<u64>,
    /// Bytes that a token reads of the file.
    pub(super) needed: u64,
}

impl Start {
    /// Whether a cold start was asked for and the system kept the pages, or never had them on a disk.
    pub(super) fn not_cold(&self) -> bool {
        self.cold && self.token.is_some() && self.disk.is_some_and(|read| read < self.needed / 2)
    }
}

/// Has the system drop the pages of a model's files. Those that a program has mapped stay.
pub(super) fn drop_pages(path: &Path) -> Result<()> {
    let files: Vec<PathBuf> = {
        let file = GgufFile::open(path)?;
        file.parts().iter().map(|p| p.path().to_path_buf()).collect()
    };
    for path in files {
        let failed = |what: &str, e: std::io::Error| {
            Failure::Usage(format!("`{}`: cannot {what} for `--cold`: {e}", path.display()))
        };
        let file = std::fs::File::open(&path).map_err(|e| failed("open it", e))?;
        // Pages that are not on disk yet would stay; a file system that cannot flush has none.
        let _ = fdatasync(&file);
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| failed("drop its pages", e.into()))?;
    }
    Ok(())
}
