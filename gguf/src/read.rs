//! An opened file: what the parser found, and access to the tensors' data.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::parse::{Parsed, parse};
use crate::source::{self, Source};
use crate::validate::{self, Finding};
use crate::{Error, Metadata, Result, TensorInfo};

/// Byte order of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Endian {
    Little,
    Big,
}

/// The first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Format version: 2 or 3.
    pub version: u32,
    /// Byte order.
    pub endian: Endian,
}

/// An opened GGUF file: everything but the tensor data is in memory.
///
/// Opening refuses only what cannot be read at all. Call [`GgufFile::require_sound`] before relying on the
/// tensors' places, or let [`validate::layout`] list what is wrong.
#[derive(Debug)]
pub struct GgufFile {
    /// Version and byte order.
    pub header: Header,
    /// Metadata in the file's order.
    pub metadata: Metadata,
    /// Tensors in the file's order.
    pub tensors: Vec<TensorInfo>,
    /// Alignment of tensor data in bytes (`general.alignment`, 32 if absent).
    pub alignment: u64,
    /// Byte position of the data section.
    pub data_offset: u64,
    /// Indices of `tensors`, in the order of their names.
    by_name: Vec<usize>,
    /// What the parser noticed and could live with.
    pub(crate) findings: Vec<Finding>,
    source: Arc<dyn Source>,
}

impl GgufFile {
    /// Opens for streaming: data is read by position.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_source(source::open(path)?)
    }

    /// Opens mapped: data is borrowed from the page cache.
    pub fn open_mapped(path: &Path) -> Result<Self> {
        Self::from_source(source::map(path)?)
    }

    /// Parses any source.
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self> {
        let parsed = parse(&*source, usize::MAX)?;
        Ok(Self::new(parsed, source))
    }

    fn new(parsed: Parsed, source: Arc<dyn Source>) -> Self {
        let Parsed {
            header,
            metadata,
            tensors,
            alignment,
            data_offset,
            findings,
            ..
        } = parsed;
        let mut by_name: Vec<usize> = (0..tensors.len()).collect();
        by_name.sort_by_key(|&i| tensors[i].name.as_str());
        Self {
            header,
            metadata,
            tensors,
            alignment,
            data_offset,
            by_name,
            findings,
            source,
        }
    }

    /// The source, for its path and raw bytes.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// The tensor with this name (the first in the file, should there be several).
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let i = self
            .by_name
            .partition_point(|&i| self.tensors[i].name.as_str() < name);
        self.by_name
            .get(i)
            .map(|&i| &self.tensors[i])
            .filter(|t| t.name == name)
    }

    /// The tensors in the order of their names.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = &TensorInfo> {
        self.by_name.iter().map(|&i| &self.tensors[i])
    }

    /// Refuses a file whose tensors cannot be used as they stand: the first severe finding of
    /// [`validate::layout`], or big-endian data, which is not converted.
    pub fn require_sound(&self) -> Result<()> {
        let path = self.source.path();
        if self.header.endian == Endian::Big {
            let what = "the file is big-endian, its tensor data is not converted: expected little-endian; make \
                        it again for this kind of machine";
            return Err(Error::malformed(path, 4, what));
        }
        match validate::layout(self).into_iter().find(|f| f.severe) {
            Some(f) => Err(Error::malformed(
                path,
                f.at.unwrap_or(0),
                format!("{}: {}", f.object, f.what),
            )),
            None => Ok(()),
        }
    }

    /// Fills `buf` with the tensor's bytes from `at` (counted inside the tensor), as they stand in the file:
    /// of a big-endian file they are not converted. An error if they are not all inside the tensor and file.
    pub fn read_tensor(&self, tensor: &TensorInfo, at: u64, buf: &mut [u8]) -> Result<()> {
        let start = self.part(tensor, at, buf.len() as u64)?;
        self.source.read_at(start, buf)
    }

    /// All bytes of a tensor as they stand in the file, borrowed if the file is mapped. An error if they are
    /// not all inside the file.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<Cow<'_, [u8]>> {
        let start = self.part(tensor, 0, tensor.n_bytes)?;
        let n = usize::try_from(tensor.n_bytes).expect("inside a file that is mapped or read whole");
        self.source.slice(start, n)
    }

    /// The byte range of a tensor in the whole file. It may lie beyond the end of a damaged file.
    pub fn tensor_range(&self, tensor: &TensorInfo) -> Range<u64> {
        let start = self.data_offset.saturating_add(tensor.offset);
        start..start.saturating_add(tensor.n_bytes)
    }

    /// The position in the file of bytes `at .. at + n` of a tensor.
    fn part(&self, tensor: &TensorInfo, at: u64, n: u64) -> Result<u64> {
        let path = self.source.path();
        let range = self.tensor_range(tensor);
        if range.end > self.source.len() || range.end - range.start != tensor.n_bytes {
            let what = format!(
                "tensor `{}` needs {} bytes from here, but the file has {} bytes in all: it is truncated or damaged",
                tensor.name,
                tensor.n_bytes,
                self.source.len()
            );
            return Err(Error::malformed(path, range.start, what));
        }
        if at.checked_add(n).is_none_or(|end| end > tensor.n_bytes) {
            let what = format!(
                "tensor `{}`: expected {n} bytes from byte {at} of it, found {} in all",
                tensor.name, tensor.n_bytes
            );
            return Err(Error::malformed(path, range.start, what));
        }
        Ok(range.start + at)
    }
}

/// A file opened for a look: of long arrays (vocabularies) only the front is kept, the rest is passed over.
/// Some ten times faster to open than a [`GgufFile`] with a large vocabulary.
#[derive(Debug)]
pub struct Outline {
    file: GgufFile,
    cut: HashMap<String, u64>,
}

impl Outline {
    /// Opens a file; of each array the first `keep` elements are kept.
    pub fn open(path: &Path, keep: usize) -> Result<Self> {
        let source = source::open(path)?;
        let mut parsed = parse(&*source, keep)?;
        let cut = std::mem::take(&mut parsed.cut).into_iter().collect();
        Ok(Self {
            file: GgufFile::new(parsed, source),
            cut,
        })
    }

    /// The file, complete but for its arrays: its metadata must not be written.
    pub fn file(&self) -> &GgufFile {
        &self.file
    }

    /// How many elements the array of a key has in the file, if some were passed over.
    pub fn cut_len(&self, key: &str) -> Option<u64> {
        self.cut.get(key).copied()
    }
}
