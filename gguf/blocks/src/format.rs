//! The record that describes one tensor type. Everything that lists types iterates the registry of these.

use crate::kernel::Kernel;
use crate::{Cpu, Geometry};

/// The number that stands for a tensor type in a GGUF file (`ggml_type`). Unknown numbers are legal: a
/// container can hold types this build cannot decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u32);

/// How much each column matters when a row is encoded. Explicit, so that nothing is weighted by accident.
#[derive(Clone, Copy, Debug)]
pub enum Importance<'a> {
    /// No importance: the type's own unweighted search.
    None,
    /// One weight a column, as many as the row has elements: the mean square of the activations.
    Column(&'a [f32]),
}

/// Decodes whole rows: `bytes` is a whole number of blocks, `out` has exactly their elements.
pub type DecodeRow = fn(bytes: &[u8], out: &mut [f32]);

/// Encodes one row: `out` has exactly the bytes of `src.len()` elements.
pub type EncodeRow = fn(src: &[f32], importance: Importance<'_>, out: &mut [u8]);

/// Looks for values that no sound file has (non-finite scales or values) in whole blocks. Returns the index
/// of the first block that is unsound.
pub type CheckBlocks = fn(bytes: &[u8]) -> Option<usize>;

/// One tensor type. Plain data in a static; the registry is an ordered list of these.
#[derive(Debug)]
pub struct Format {
    /// The file's number for this type.
    pub id: TypeId,
    /// The canonical name, as llama.cpp prints it in upper case: `Q4_K`, `BF16`.
    pub name: &'static str,
    /// Storage of a row.
    pub geometry: Geometry,
    /// Whether values are stored in fewer bits than 16, so that encoding again loses more.
    pub quantized: bool,
    /// Whether encoding without importance is refused.
    pub requires_importance: bool,
    /// Decoder; `None` for types that only pass through (integers).
    pub decode: Option<DecodeRow>,
    /// Encoder; `None` where the type can only be read.
    pub encode: Option<EncodeRow>,
    /// Soundness of stored blocks.
    pub check: CheckBlocks,
    /// The kernels at a level. Types without their own get the one made from the decoder.
    pub kernel: fn(Cpu) -> Option<Kernel>,
    /// One sentence for the table in the documents.
    pub doc: &'static str,
}
