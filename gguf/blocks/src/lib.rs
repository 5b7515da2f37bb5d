//! Every tensor type of GGUF: its storage, its decoder, its encoder and its pieces of matrix products.
//!
//! A tensor is rows of equal length, and a row is a whole number of blocks. A block holds a fixed number of values
//! in a fixed number of bytes: small whole numbers, called codes, and what turns them back into values, called
//! scales and minima. Types of 32 values to a block have one scale each; the K types store super-blocks of 256
//! values whose sub-blocks have small scales in units of a common one. The lattice types (`IQ2_XXS` and its kin) store
//! numbers of points, each the magnitudes of 8 or 4 values. Some types of `ik_llama.cpp` have a header in front of
//! each row, keep several rows interleaved, or end a tensor with its scale. [`Geometry`] says how many bytes rows
//! take and what can be decoded by itself; [`Format::decode_rows`] and [`Format::check_rows`] take rows of any type.
//! Nothing here knows of files, names of tensors or models.
//!
//! # The registry
//!
//! A type is one [`Format`]: plain data with the file's number, the name, the geometry and functions over whole
//! rows. [`registry`] is the ordered list of them, and the only one: programs, tables in the documents, tests and
//! benchmarks iterate it. Each type is a folder under `src/types`; adding one means adding the folder, its `mod`
//! line and its entry, and a test fails if one of these is missing.
//!
//! ```
//! use gguf_blocks::{Cpu, Importance, registry};
//!
//! let q8 = registry::by_name("q8_0").expect("a type every build has");
//! let encode = q8.encoder(Cpu::best()).expect("can be written");
//! let decode = q8.decode.expect("can be read");
//! let row: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
//! let mut bytes = vec![0; q8.geometry.row_bytes(64).expect("two blocks") as usize];
//! encode(&row, Importance::None, &mut bytes);
//! let mut back = vec![0.0; 64];
//! decode(&bytes, &mut back);
//! assert!(row.iter().zip(&back).all(|(a, b)| (a - b).abs() < 0.01));
//! ```
//!
//! # Bits
//!
//! Decoders and encoders give the bits that llama.cpp gives on x86-64, with and without importance. The types of
//! `ik_llama.cpp` ([`Origin::Ik`]) were taken from a description and not compared with that program. All sums
//! are f32 in the order of the elements, products and sums are rounded one by one and never fused, and where the
//! reference lets a number wrap round, so does this crate. The same row gives the same bytes on every machine, at
//! every instruction set level, in debug and release builds. Matrix products need not agree with anyone else's,
//! but they too are the same at every level: see [`kernel`].
//!
//! # What it refuses
//!
//! Lengths are the caller's business and are asserted once for each row. Any bytes decode, without a panic, to
//! some values; whether stored scales are finite is what [`Format::check`] answers. Encoders accept any finite
//! row; for infinite and NaN values ([`half_bulk::first_non_finite`] finds them) they write something, always the
//! same, that the check may reject. A value too large for a half-precision scale becomes an infinite scale, which
//! the check finds. `BF16_R16` has no decoder, since the order of its values is not known here. Many types can only
//! be read.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for the lowest level and vectorised for itself"
)]

pub mod activation;
mod blocks32;
mod codebook;
mod cpu;
mod format;
mod geometry;
mod grids;
mod groups;
#[cfg(all(test, unix))]
mod guard;
pub mod half_bulk;
mod ik;
mod interleaved;
mod iq4;
pub mod kernel;
mod packing;
pub mod registry;
mod rows;
mod search;
mod simd;
mod six_bit;
mod ternary;
#[cfg(test)]
mod test_random;
pub mod tile;
mod trellis;
mod types;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use cpu::{Cpu, Level, UnknownLevel};
pub use format::{CheckBlocks, DecodeRow, EncodeRow, Format, Importance, Origin, Place, TypeId};
pub use geometry::{Geometry, Unit};
