//! Computes every offset of a file before a byte of it is written.

use crate::{Metadata, Result, Shape, TensorInfo};
use gguf_blocks::TypeId;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name, at most 63 bytes.
    pub name: String,
    /// Dimensions, row length first.
    pub shape: Shape,
    /// A type this build knows.
    pub type_id: TypeId,
}

/// A whole file's plan: version 3, little-endian.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Everything up to the data section: header, metadata, tensor list, padding.
    pub head: Vec<u8>,
    /// The tensors with offsets and sizes.
    pub tensors: Vec<TensorInfo>,
    /// Alignment of tensor data in bytes.
    pub alignment: u64,
    /// Bytes of the whole file.
    pub total_bytes: u64,
}

impl Layout {
    /// Lays a file out. Refuses duplicate or overlong names, unknown types and rows that are not whole
    /// blocks. The alignment is the metadata's `general.alignment`, else 32.
    pub fn plan(_metadata: &Metadata, _tensors: Vec<TensorSpec>) -> Result<Self> {
        todo!()
    }
}
