//! Every tensor type of GGUF: its storage, its decoder, its encoder and its pieces of matrix products.

pub mod activation;
mod cpu;
mod format;
mod geometry;
pub mod kernel;
pub mod registry;
pub mod tile;
mod types;

pub use cpu::{Cpu, Level};
pub use format::{CheckBlocks, DecodeRow, EncodeRow, Format, Importance, TypeId};
pub use geometry::Geometry;
