//! What a type offers to matrix products.
//!
//! A type gives either integer kernels (its values are multiplied as integers with quantized activations)
//! or float kernels (its values become f32 and meet f32 activations, which a type may have rounded first). The loops over rows and columns live
//! in `gguf-runtime`; a type supplies only the unpacking of eight rows. A product with a single column takes
//! the same way: unpacking is byte-parallel over eight rows and cheap next to reading the row from memory, and
//! results then do not depend on how many columns are multiplied together.
//!
//! Every level unpacks to the same bits, and tests compare levels with `==`. No fused multiply-add.

use std::ops::Range;

use zerocopy::FromBytes;

use crate::rows::Stored;
use crate::tile::{GROUP, Panel, ROWS, Tile, TileKind};

/// Unpacks groups `first_group .. first_group + tile.n_groups()` (32 columns each) of 8 rows into `tile`.
/// `rows[i]` is the whole stored row `i`; a short last panel repeats its last row. The groups must be whole
/// blocks.
pub type UnpackTile = fn(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile);

/// Unpacks columns `first_col .. first_col + panel.n_cols()` of 8 rows into `panel`. `rows[i]` is the whole
/// stored row `i`; a short last panel repeats its last row.
pub type UnpackPanel = fn(rows: [&[u8]; ROWS], first_col: usize, panel: &mut Panel);

/// Rounds activations to the precision of the weights they meet; both slices have one length.
pub type RoundActivations = fn(x: &[f32], rounded: &mut [f32]);

/// The kernels of one type at one level.
#[derive(Clone, Copy, Debug)]
pub enum Kernel {
    /// Integer products with Q8 activations.
    Int {
        /// Eight rows into a tile.
        unpack: UnpackTile,
        /// What the tile's numbers look like.
        kind: TileKind,
    },
    /// Float products with f32 activations.
    Float {
        /// Eight rows into a panel.
        unpack: UnpackPanel,
        /// What activations are rounded to in front of the product, where the reference does so.
        round: Option<RoundActivations>,
    },
}

/// One row's group of 32 values: `w = scale * v - min`, for each half.
pub(crate) struct Group {
    pub(crate) v: [u8; GROUP],
    pub(crate) scale: [f32; 2],
    pub(crate) min: [f32; 2],
}

/// `map` for eight rows that is compiled into its caller, which that of arrays is not.
#[inline(always)]
fn each<T, U>(rows: [T; ROWS], f: impl Fn(T) -> U) -> [U; ROWS] {
    let [a, b, c, d, e, g, h, i] = rows;
    [f(a), f(b), f(c), f(d), f(e), f(g), f(h), f(i)]
}

/// The blocks of each row that hold the groups to unpack; the check of all lengths is here, once a row.
#[inline]
pub(crate) fn blocks<B>(rows: [&[u8]; ROWS], first_group: usize, n_groups: usize) -> [&[B]; ROWS]
where
    B: Stored + GroupedBlock,
{
    let whole = first_group.is_multiple_of(B::GROUPS) && n_groups.is_multiple_of(B::GROUPS);
    assert!(whole, "groups {first_group} + {n_groups} are not whole blocks");
    let (first, n) = (first_group / B::GROUPS, n_groups / B::GROUPS);
    let bytes = first * size_of::<B>()..(first + n) * size_of::<B>();
    each(rows, |row| {
        <[B]>::ref_from_bytes_with_elems(&row[bytes.clone()], n)
            .expect("the range has the bytes of `n` blocks")
    })
}

/// Block `i` of each row.
// Closures of functions with target features do not end up inside `map`, so those call this.
#[inline]
pub(crate) fn nth<B>(rows: [&[B]; ROWS], i: usize) -> [&B; ROWS] {
    each(rows, |row| &row[i])
}

/// Pieces of 16 bytes, and what remains.
pub(crate) type Pieces<'a> = (&'a [[u8; 16]], &'a [u8]);

/// The pieces of a stretch of each row.
#[inline]
pub(crate) fn pieces<'a>(rows: [&'a [u8]; ROWS], bytes: &Range<usize>) -> [Pieces<'a>; ROWS] {
    each(rows, |row| row[bytes.clone()].as_chunks())
}

/// A block of an integer type.
pub(crate) trait GroupedBlock {
    /// Groups of 32 values in a block.
    const GROUPS: usize;

    /// Unpacks group `g` of the block.
    fn group(&self, g: usize) -> Group;
}

/// Unpacks with the blocks' own [`GroupedBlock::group`]: the portable kernel of every integer type.
pub(crate) fn unpack<B>(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile)
where
    B: Stored + GroupedBlock,
{
    for (row, blocks) in blocks::<B>(rows, first_group, tile.n_groups())
        .into_iter()
        .enumerate()
    {
        for (b, block) in blocks.iter().enumerate() {
            for g in 0..B::GROUPS {
                let Group { v, scale, min } = block.group(g);
                let group = b * B::GROUPS + g;
                tile.set_values(group, row, &v);
                for half in 0..2 {
                    tile.scale[group][half][row] = scale[half];
                    tile.min[group][half][row] = min[half];
                }
            }
        }
    }
}

/// Unpacks a float type of `N` bytes a value: the portable kernel of those.
pub(crate) fn unpack_floats<const N: usize>(
    rows: [&[u8]; ROWS],
    first_col: usize,
    panel: &mut Panel,
    value: impl Fn([u8; N]) -> f32,
) {
    let n_cols = panel.n_cols();
    for (r, row) in rows.into_iter().enumerate() {
        let (values, _) = row[first_col * N..(first_col + n_cols) * N].as_chunks::<N>();
        for (lanes, bytes) in panel.v.iter_mut().zip(values) {
            lanes[r] = value(*bytes);
        }
    }
}

#[cfg(test)]
mod tests;
