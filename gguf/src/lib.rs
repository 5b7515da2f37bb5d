//! The GGUF container: reading, checking, planning and writing, without a look at what the numbers mean.
//!
//! # The file
//!
//! A file is a head and a data section. The head holds the magic `GGUF`, the version, the number of tensors and
//! of metadata pairs, then the pairs in their order, then one entry for each tensor: name, dimensions, type and
//! offset. It is padded with zeros to the alignment (`general.alignment`, 32 bytes if absent). The data section
//! holds the tensors' bytes one after the other, each padded likewise, so that every offset is the sum of the
//! padded sizes before it. Offsets count from the start of the data section.
//!
//! Dimensions are given row length first, the reverse of a checkpoint's shape. How many bytes a row takes is the
//! business of the tensor type; this crate asks the registry of `gguf_blocks`, and only there. A type that the
//! registry does not know is legal: its tensor takes the room up to whatever comes next.
//!
//! # Reading
//!
//! A [`source::Source`] gives bytes by position: from a file, a mapping, memory or, with feature `http`, a server.
//! [`GgufFile`] is what one forward pass over the head found, with access to the tensors' bytes; [`Outline`] is the
//! same without long arrays, for programs that only look. A model may stand in several files, a split set: any of
//! its shards, or their folder, opens all of them as one [`GgufFile`] of several [`Part`]s. Versions 2 and 3 in both byte orders are read. The data of a big-endian
//! file is handed out as it stands: who needs the values calls [`GgufFile::require_sound`] first, which refuses
//! such a file, as it does any with a severe finding.
//!
//! Opening refuses what hides the rest of the head or the data section: another format (named where it is a
//! usual mix-up), a head that ends early, claims that the bytes left in the file cannot back, unknown value
//! types, shapes that overflow, an alignment that is no sound power of two. [`limits`] has the caps. Nothing is
//! allocated before the bytes for it are proved to be there, so the memory for a file is a small multiple of
//! its head.
//!
//! Everything else that can be wrong (duplicates, holes, overlaps, tensors beyond the end, ragged rows) is left
//! to [`validate`], which lists all findings at once, so that a damaged file can be shown. Access to a tensor's
//! bytes is checked against the real file each time.
//!
//! # Writing
//!
//! [`Layout::plan`] computes the head and every offset before a byte is written, so the size of an output is
//! known in advance; [`Writer`] takes the tensors' bytes in order and in pieces of any size, and
//! [`atomic::AtomicFile`] lets the file appear under its name only when it is complete. Version 3,
//! little-endian is written, whatever was read; a file that a sound writer made is written again byte for byte.
//!
//! [`split`] turns one file into the shards of a set and back, [`edit`] changes metadata, in place where the new head
//! fits the room of the old one. Both pass pairs that they do not change on as bytes, and both can be stopped at any
//! moment without a loss.
//!
//! # Errors
//!
//! An [`Error`] names the file, the byte, the object, and what was expected and found. No input makes this
//! crate panic.
#![deny(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]

pub mod atomic;
mod copy;
mod cursor;
pub mod digest;
pub mod edit;
mod encode;
mod error;
pub mod fault;
pub mod key;
mod layout;
pub mod limits;
#[doc(hidden)]
pub mod line;
mod metadata;
mod name;
mod pairs;
mod parse;
mod read;
pub mod resumable;
mod sniff;
pub mod source;
pub mod split;
mod strings;
mod tensor;
pub mod validate;
mod value;
mod write;

pub use error::{Error, Malformed, Result};
pub use layout::{Layout, TensorSpec};
pub use metadata::Metadata;
pub use name::{cut, listed, short};
pub use read::{Endian, GgufFile, Header, OpenOptions, Outline, Part};
pub use strings::Strings;
pub use tensor::{Shape, TensorInfo};
pub use value::{Array, Value, ValueType};
pub use write::Writer;
