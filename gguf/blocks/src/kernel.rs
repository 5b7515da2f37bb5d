//! What a type offers to matrix products.
//!
//! A type gives either integer kernels (its values are multiplied as integers with quantized activations)
//! or float kernels (its values become f32 and meet f32 activations). The loops over rows and columns live
//! in `gguf-runtime`; a type supplies only small pieces.
//!
//! Every level computes the same sums in the same order, so results are the same bits at every level: the
//! order below is part of the contract, and tests compare levels with `==`. No fused multiply-add.

use crate::activation::Q8Row;
use crate::tile::{Tile, TileKind};

/// Dot product of one stored row with one quantized activation row of as many elements.
pub type DotQ8 = fn(row: &[u8], act: Q8Row<'_>) -> f32;

/// Dot product of one stored row with an f32 row.
pub type DotF32 = fn(row: &[u8], act: &[f32]) -> f32;

/// Unpacks groups `first_group .. first_group + tile.n_groups()` (32 columns each) of 8 rows into `tile`.
/// `rows[i]` is the whole stored row `i`; a short last panel repeats its last row.
pub type UnpackTile = fn(rows: [&[u8]; 8], first_group: usize, tile: &mut Tile);

/// The kernels of one type at one level.
#[derive(Clone, Copy, Debug)]
pub enum Kernel {
    /// Integer products with Q8 activations.
    Int {
        /// One row times one column.
        dot: DotQ8,
        /// Eight rows into a tile.
        unpack: UnpackTile,
        /// What the tile's numbers look like.
        kind: TileKind,
    },
    /// Float products with f32 activations.
    Float {
        /// One row times one column.
        dot: DotF32,
        /// Decodes a stretch of a row to f32: see [`crate::DecodeRow`].
        decode: crate::DecodeRow,
    },
}
