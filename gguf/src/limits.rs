//! Caps on what a file may claim.
//!
//! Each claim is also checked against the bytes that are left in the file before anything is allocated for it. The
//! caps bound what a sparse file, which has any number of bytes for nothing, can cost.

/// Bytes of a head: everything in front of the data section. The largest in use have some 30 MiB.
pub const MAX_HEAD_BYTES: u64 = 256 << 20;

/// Bytes of a metadata key.
pub const MAX_KEY_BYTES: u64 = 65_535;

/// Bytes of a tensor name that can be read. Names over [`NAME_BYTES`] are findings of [`crate::validate`].
pub const MAX_NAME_BYTES: u64 = 65_535;

/// Bytes of a tensor name that every reader accepts.
pub const NAME_BYTES: usize = 63;

/// Bytes of a string value.
pub const MAX_STRING_BYTES: u64 = MAX_HEAD_BYTES;

/// Elements of an array.
pub const MAX_ARRAY_LEN: u64 = MAX_HEAD_BYTES;

/// Arrays inside arrays. llama.cpp reads none at all; deeper ones than this are not worth the stack.
pub const MAX_NESTING: usize = 4;

/// Arrays inside arrays of a whole file. Each costs more memory than the twelve bytes it may take in the file.
pub const MAX_INNER_ARRAYS: u64 = 1 << 18;

/// Metadata pairs.
pub const MAX_KEYS: u64 = 1 << 16;

/// Tensors of one file.
pub const MAX_TENSORS: u64 = 1 << 20;

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
