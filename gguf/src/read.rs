//! The parser: one forward pass over header, metadata and tensor list.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use crate::source::Source;
use crate::{Metadata, Result, TensorInfo};

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
    source: Arc<dyn Source>,
}

impl GgufFile {
    /// Opens for streaming: data is read by position.
    pub fn open(_path: &Path) -> Result<Self> {
        todo!()
    }

    /// Opens mapped: data is borrowed from the page cache.
    pub fn open_mapped(_path: &Path) -> Result<Self> {
        todo!()
    }

    /// Parses any source.
    pub fn from_source(_source: Arc<dyn Source>) -> Result<Self> {
        todo!()
    }

    /// The source, for its path and raw bytes.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// The tensor with this name.
    pub fn tensor(&self, _name: &str) -> Option<&TensorInfo> {
        todo!()
    }

    /// Fills `buf` with the tensor's bytes from `at` (counted inside the tensor).
    pub fn read_tensor(&self, _tensor: &TensorInfo, _at: u64, _buf: &mut [u8]) -> Result<()> {
        todo!()
    }

    /// All bytes of a tensor, borrowed if the file is mapped.
    pub fn tensor_bytes(&self, _tensor: &TensorInfo) -> Result<Cow<'_, [u8]>> {
        todo!()
    }

    /// The byte range of a tensor in the whole file.
    pub fn tensor_range(&self, tensor: &TensorInfo) -> std::ops::Range<u64> {
        let start = self.data_offset + tensor.offset;
        start..start + tensor.n_bytes
    }
}
