//! Every tensor type of GGUF: its storage, its decoder, its encoder and its pieces of matrix products.

pub mod activation;
mod cpu;
mod format;
mod geometry;
pub mod half_bulk;
pub mod kernel;
mod packing;
pub mod registry;
mod rows;
mod search;
mod six_bit;
#[cfg(test)]
mod test_random;
pub mod tile;
mod types;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use cpu::{Cpu, Level};
pub use format::{CheckBlocks, DecodeRow, EncodeRow, Format, Importance, TypeId};
pub use geometry::Geometry;
