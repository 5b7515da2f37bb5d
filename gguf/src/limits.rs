//! Caps on what a file may claim.
//!
//! Each claim is also checked against the bytes that are left in the file before anything is allocated for it,
//! so the caps only bound time and nonsense: memory stays a small multiple of the file's size without them.

/// Bytes of a metadata key.
pub const MAX_KEY_BYTES: u64 = 65_535;

/// Bytes of a tensor name that can be read. Names over [`NAME_BYTES`] are findings of [`crate::validate`].
pub const MAX_NAME_BYTES: u64 = 65_535;

/// Bytes of a tensor name that every reader accepts.
pub const NAME_BYTES: usize = 63;

/// Bytes of a string value.
pub const MAX_STRING_BYTES: u64 = 1 << 30;

/// Elements of an array.
pub const MAX_ARRAY_LEN: u64 = 1 << 30;

/// Arrays inside arrays. llama.cpp reads none at all; deeper ones than this are not worth the stack.
pub const MAX_NESTING: usize = 4;

/// Metadata pairs.
pub const MAX_KEYS: u64 = 1 << 20;

/// Tensors.
pub const MAX_TENSORS: u64 = 1 << 24;

/// Dimensions of a tensor.
pub const MAX_DIMS: u32 = 4;

/// Bytes of alignment. A larger one is a power of two all right, but only serves to blow a file up.
pub const MAX_ALIGNMENT: u64 = 1 << 20;

/// The alignment of a file that does not name one, in bytes.
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// Fewest bytes a metadata pair takes: key length, value type and a one-byte value.
pub(crate) const MIN_PAIR_BYTES: u64 = 8 + 4 + 1;

/// Fewest bytes an entry of the tensor list takes: name length, number of dimensions, type and offset.
pub(crate) const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;
