//! An opened model: what the parser found in its file or files, and access to the tensors' data.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::parse::{Keep, Parsed, Spans, parse};
use crate::source::{self, Source};
use crate::split::SplitKeys;
use crate::validate::{self, Finding};
use crate::{Error, Malformed, Metadata, Result, TensorInfo, edit, split};

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

/// One file of a model: all of it, or a shard of a split set.
#[derive(Debug)]
pub struct Part {
    /// Version and byte order.
    pub header: Header,
    /// Alignment of tensor data in bytes (`general.alignment`, 32 if absent).
    pub alignment: u64,
    /// Byte position of the data section.
    pub data_offset: u64,
    /// What the `split.*` keys say.
    pub split: SplitKeys,
    /// Its tensors, as indices of [`GgufFile::tensors`].
    pub tensors: Range<usize>,
    /// What the parser noticed and could live with.
    pub(crate) findings: Vec<Finding>,
    pub(crate) spans: Spans,
    /// Metadata keys of its own; a shard behind the first should have only those of the split.
    pub(crate) n_keys: usize,
    source: Arc<dyn Source>,
}

impl Part {
    /// The file's bytes and path.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// The same, for another owner.
    pub fn shared_source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.source)
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// The byte range of a tensor of this part in its file. It may lie beyond the end of a damaged file.
    pub fn tensor_range(&self, tensor: &TensorInfo) -> Range<u64> {
        let start = self.data_offset.saturating_add(tensor.offset);
        start..start.saturating_add(tensor.n_bytes)
    }
}

/// An opened model, in one file or in the shards of a split set: everything but the tensor data is in memory.
///
/// Opening refuses only what cannot be read at all. Call [`GgufFile::require_sound`] before relying on the
/// tensors' places, or let [`validate::layout`] list what is wrong.
#[derive(Debug)]
pub struct GgufFile {
    /// Metadata in the file's order; of a split set, that of the first shard.
    pub metadata: Metadata,
    /// Tensors of all parts, part by part in their files' order.
    pub tensors: Vec<TensorInfo>,
    parts: Vec<Part>,
    /// Shards of the set that are not there; only [`OpenOptions::incomplete`] lets some be missing.
    missing: Vec<PathBuf>,
    /// Shards of the set whose heads cannot be read; likewise.
    unreadable: Vec<Malformed>,
    /// Indices of `tensors`, in the order of their names.
    by_name: Vec<usize>,
}

/// How to open a model.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    mapped: bool,
    alone: bool,
    incomplete: bool,
    keep: Keep,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Data read by position; whole split sets; no shard may be missing.
    pub fn new() -> Self {
        Self {
            mapped: false,
            alone: false,
            incomplete: false,
            keep: Keep::ALL,
        }
    }

    /// Maps the files: data is borrowed from the page cache.
    #[must_use]
    pub fn mapped(mut self) -> Self {
        self.mapped = true;
        self
    }

    /// Opens only the named file, also where it is a shard.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Opens what is there and can be read of a split set; other shards are findings of [`validate::layout`].
    #[must_use]
    pub fn incomplete(mut self) -> Self {
        self.incomplete = true;
        self
    }

    /// Keeps the array of this key whole in an outline.
    #[must_use]
    pub fn whole(mut self, key: &'static str) -> Self {
        self.keep.whole = Some(key);
        self
    }

    /// Opens a file, the split set that it belongs to, or the only model of a folder.
    pub fn open(&self, path: &Path) -> Result<GgufFile> {
        Ok(self.parse(path)?.0)
    }

    /// Opens a model for a look: of each array only the front is kept, `keep` elements of it; those that are arrays
    /// themselves are kept whole.
    pub fn outline(mut self, path: &Path, keep: usize) -> Result<Outline> {
        self.keep.n = keep;
        let (file, cut) = self.parse(path)?;
        Ok(Outline { file, cut })
    }

    /// The file, and the arrays of its metadata that were cut.
    fn parse(&self, path: &Path) -> Result<(GgufFile, HashMap<String, u64>)> {
        let path = &*split::in_folder(path)?;
        let (parsed, source) = self.parse_one(path)?;
        let siblings = if self.alone {
            None
        } else {
            SplitKeys::of(&parsed.metadata).siblings(path)?
        };
        let Some(name) = siblings else {
            return Ok(GgufFile::new(vec![(parsed, source)], Vec::new(), Vec::new()));
        };
        let mut opened = Some((parsed, source));
        let mut parts = Vec::new();
        let mut missing = Vec::new();
        let mut unreadable = Vec::new();
        for no in 1..=name.count {
            if no == name.no {
                parts.extend(opened.take());
                continue;
            }
            let path = name.path(no);
            if !source::is_url(&path) && !path.exists() {
                missing.push(path);
                continue;
            }
            match self.parse_one(&path) {
                Ok(part) => parts.push(part),
                Err(Error::Malformed(e)) if self.incomplete => unreadable.push(*e),
                Err(e) => return Err(e),
            }
        }
        if !missing.is_empty() && !self.incomplete {
            return Err(split::missing(path, &missing));
        }
        Ok(GgufFile::new(parts, missing, unreadable))
    }

    /// One file, as it stands between two edits.
    fn parse_one(&self, path: &Path) -> Result<(Parsed, Arc<dyn Source>)> {
        edit::refuse_interrupted(path)?;
        let modified = || path.metadata().and_then(|m| m.modified()).ok();
        let before = modified();
        let source = self.source(path)?;
        let parsed = parse(&*source, self.keep);
        // With an edit that began meanwhile, the head may be half old, half new.
        edit::refuse_interrupted(path)?;
        if parsed.is_err() && modified() != before {
            let what = "the file changed while its head was read: run the command again";
            return Err(Error::malformed(path, 0, what));
        }
        Ok((parsed?, source))
    }

    fn source(&self, path: &Path) -> Result<Arc<dyn Source>> {
        if self.mapped {
            source::map(path)
        } else {
            source::open(path)
        }
    }
}

impl GgufFile {
    /// Opens for streaming: data is read by position. The path names a file, any shard of a split set, which
    /// opens the whole set, or a folder with one model in it.
    pub fn open(path: &Path) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// As [`GgufFile::open`], but mapped: data is borrowed from the page cache.
    pub fn open_mapped(path: &Path) -> Result<Self> {
        OpenOptions::new().mapped().open(path)
    }

    /// Parses one source.
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self> {
        Self::from_sources(vec![source])
    }

    /// Parses the shards of a set in their order. At least one.
    pub fn from_sources(sources: Vec<Arc<dyn Source>>) -> Result<Self> {
        let parts: Result<Vec<_>> = sources
            .into_iter()
            .map(|source| Ok((parse(&*source, Keep::ALL)?, source)))
            .collect();
        Ok(Self::new(parts?, Vec::new(), Vec::new()).0)
    }

    fn new(
        parsed: Vec<(Parsed, Arc<dyn Source>)>,
        missing: Vec<PathBuf>,
        unreadable: Vec<Malformed>,
    ) -> (Self, HashMap<String, u64>) {
        let mut metadata = None;
        let mut cut = HashMap::new();
        let mut tensors = Vec::new();
        let mut parts = Vec::new();
        for (i, (parsed, source)) in parsed.into_iter().enumerate() {
            let start = tensors.len();
            tensors.extend(parsed.tensors.into_iter().map(|t| TensorInfo { part: i, ..t }));
            parts.push(Part {
                header: parsed.header,
                alignment: parsed.alignment,
                data_offset: parsed.data_offset,
                split: SplitKeys::of(&parsed.metadata),
                tensors: start..tensors.len(),
                findings: parsed.findings,
                spans: parsed.spans,
                n_keys: parsed.metadata.len(),
                source,
            });
            if metadata.is_none() {
                metadata = Some(parsed.metadata);
                cut = parsed.cut.into_iter().collect();
            }
        }
        assert!(!parts.is_empty(), "a model has a file");
        let mut by_name: Vec<usize> = (0..tensors.len()).collect();
        by_name.sort_by_key(|&i| tensors[i].name.as_str());
        let file = Self {
            metadata: metadata.unwrap_or_default(),
            tensors,
            parts,
            missing,
            unreadable,
            by_name,
        };
        (file, cut)
    }

    /// The files: one, or the shards of a set in their order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The first file, which has the metadata.
    pub fn first(&self) -> &Part {
        &self.parts[0]
    }

    /// The file that a tensor stands in.
    pub fn part(&self, tensor: &TensorInfo) -> &Part {
        &self.parts[tensor.part]
    }

    /// Shards that are not there ([`OpenOptions::incomplete`]).
    pub fn missing(&self) -> &[PathBuf] {
        &self.missing
    }

    /// Shards whose heads cannot be read, with the reason ([`OpenOptions::incomplete`]).
    pub fn unreadable(&self) -> &[Malformed] {
        &self.unreadable
    }

    /// Whether every shard of the set is there and can be read.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.unreadable.is_empty()
    }

    /// The path of the first file, for messages.
    pub fn path(&self) -> &Path {
        self.first().path()
    }

    /// Bytes of all files.
    pub fn n_bytes(&self) -> u64 {
        self.parts
            .iter()
            .fold(0, |n, part| n.saturating_add(part.source.len()))
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
    pub fn by_name(&self) -> impl Iterator<Item = &TensorInfo> {
        self.by_name.iter().map(|&i| &self.tensors[i])
    }

    /// Refuses a model whose tensors cannot be used as they stand: the first severe finding of
    /// [`validate::layout`], or big-endian data, which is not converted.
    pub fn require_sound(&self) -> Result<()> {
        if let Some(part) = self.parts.iter().find(|p| p.header.endian == Endian::Big) {
            let what = "the file is big-endian, its tensor data is not converted: expected little-endian; make \
                        it again for this kind of machine";
            return Err(Error::malformed(part.path(), 4, what));
        }
        match validate::layout(self).into_iter().find(|f| f.severe) {
            Some(f) => {
                let path = self.parts[f.part].path();
                // The file is named already.
                let what = match f.object.as_str() {
                    "file" => format!("{}; {}", f.what, f.remedy),
                    object => format!("{object}: {}; {}", f.what, f.remedy),
                };
                Err(Error::malformed(path, f.at.unwrap_or(0), what))
            }
            None => Ok(()),
        }
    }

    /// Fills `buf` with the tensor's bytes from `at` (counted inside the tensor), as they stand in the file:
    /// of a big-endian file they are not converted. An error if they are not all inside the tensor and file.
    pub fn read_tensor(&self, tensor: &TensorInfo, at: u64, buf: &mut [u8]) -> Result<()> {
        let start = self.position(tensor, at, buf.len() as u64)?;
        self.part(tensor).source.read_at(start, buf)
    }

    /// All bytes of a tensor as they stand in the file, borrowed if the file is mapped. An error if they are
    /// not all inside the file.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<Cow<'_, [u8]>> {
        let start = self.position(tensor, 0, tensor.n_bytes)?;
        let n = usize::try_from(tensor.n_bytes).expect("inside a file that is mapped or read whole");
        self.part(tensor).source.slice(start, n)
    }

    /// The byte range of a tensor in its file ([`GgufFile::part`]). It may lie beyond the end of a damaged file.
    pub fn tensor_range(&self, tensor: &TensorInfo) -> Range<u64> {
        self.part(tensor).tensor_range(tensor)
    }

    /// The position in its file of bytes `at .. at + n` of a tensor.
    fn position(&self, tensor: &TensorInfo, at: u64, n: u64) -> Result<u64> {
        let part = self.part(tensor);
        let path = part.path();
        let range = part.tensor_range(tensor);
        if range.end > part.source.len() || range.end - range.start != tensor.n_bytes {
            let what = format!(
                "tensor `{}` needs {} bytes from here, but the file has {} bytes in all: it is truncated or damaged",
                tensor.name,
                tensor.n_bytes,
                part.source.len()
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

/// A model opened for a look: of long arrays (vocabularies) only the front is kept, the rest is passed over.
/// Several times faster to open than a [`GgufFile`] with a large vocabulary.
#[derive(Debug)]
pub struct Outline {
    file: GgufFile,
    cut: HashMap<String, u64>,
}

impl Outline {
    /// Opens a model; of each array the first `keep` elements are kept, those that are arrays whole.
    pub fn open(path: &Path, keep: usize) -> Result<Self> {
        OpenOptions::new().outline(path, keep)
    }

    /// The model, complete but for its arrays: its metadata must not be written.
    pub fn file(&self) -> &GgufFile {
        &self.file
    }

    /// How many elements the array of a key has in the file, if some were passed over.
    pub fn cut_len(&self, key: &str) -> Option<u64> {
        self.cut.get(key).copied()
    }
}
