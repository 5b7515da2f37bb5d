//! What a type offers to matrix products.
//!
//! A type gives either integer kernels (its values are multiplied as integers with quantized activations) or float
//! kernels (its values become f32 and meet f32 activations, which a type may have rounded first).
//!
//! # Integer products
//! In each group of 32 columns a weight is `s * (v - offset) - m` with a small integer `v`; [`TileKind`] says which
//! parts a type has. A type supplies the unpacking of eight rows; the loops over it are written once for each level:
//! [`IntKernel::dot`] multiplies with one column as it unpacks, and [`IntKernel::multiply`] takes up to
//! [`MAX_COLUMNS`] columns against some [`Tile`]s that [`IntKernel::unpack`] filled. What they compute is, for one row and
//! one column, in this order, with `d` and `sum` those of the column's group:
//!
//! - types with integer scales, whose tile is one super-block with the units `D` and `M`: `t = 0`; for each group
//!   `t = fma(i, d, t)` with the whole number `i`, the sum over both halves of `s * sum((v - offset) * q)`; then
//!   `acc = fma(D, t, acc)`. Then minima: f32 ones of each group as `acc = fma(-m, sum, acc)`; integer ones of each
//!   half as `t = 0`, for each group `t = fma(i, d, t)` with `i` the sum over both halves of `m * sum(q)`, and
//!   `acc = fma(-M, t, acc)`.
//! - types with float scales: for each group, or for each half if halves have scales of their own,
//!   `acc = fma(i, s * d, acc)` with `i = sum((v - offset) * q)`; behind a group its minimum,
//!   `acc = fma(-m, sum, acc)`.
//!
//! `fma` rounds once. Sums of whole numbers are exact, so that a level may add them in any order, and rows and columns
//! never meet: every level, and any number of columns, gives the same bits, and tests compare with `==`.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avxvnni;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use zerocopy::FromBytes;

use crate::activation::GroupScale;
use crate::rows::Stored;
pub use crate::tile::MAX_COLUMNS;
use crate::tile::{GROUP, MAX_COLS, Panel, ROWS, Spread, Tile, TileKind};
use crate::{Cpu, Level};

/// Quantized columns that are multiplied together.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// The values, -127 to 127: of each group, of each four rows of it, four bytes of each column.
    pub q: &'a [i8],
    /// Scales: of each group, those of each column.
    pub scales: &'a [GroupScale],
}

/// Unpacks groups `first_group .. first_group + tile.n_groups()` (32 columns each) of 8 rows into `tile`.
/// `rows[i]` is the whole stored row `i`; a short last panel repeats its last row. The groups must be whole
/// blocks.
pub type UnpackTile = fn(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile);

/// `acc[r] += rows[r] . x` over whole rows for one column. `ahead` is memory that will be read next, as many bytes
/// as the rows have, or fewer.
pub type Dot = fn(rows: [&[u8]; ROWS], ahead: &[u8], x: Columns<'_>, tile: &mut Tile, acc: &mut [f32; ROWS]);

/// `acc[t * n + c][r] += row r of tile t . column c` over the groups of the tiles, which are the same of all rows; `x`
/// holds just these, of `n` columns: 1, 2 or [`MAX_COLUMNS`]. What is in `spread` before and after has no meaning.
pub type Multiply = fn(tiles: &[Tile], x: Columns<'_>, spread: &mut Spread, acc: &mut [[f32; ROWS]]);

/// Unpacks columns `first_col .. first_col + panel.n_cols()` of 8 rows into `panel`. `rows[i]` is the whole
/// stored row `i`; a short last panel repeats its last row.
pub type UnpackPanel = fn(rows: [&[u8]; ROWS], first_col: usize, panel: &mut Panel);

/// `acc[r] += rows[r] . x` over whole rows for one column, which is `x.len()` elements. In each [`MAX_COLS`] columns
/// element `k` goes to sum `k % 8` with `fma`, in order, and elements up to the next multiple of eight are zeros; then
/// `acc += ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))`: what products of panels give. `ahead` is as for [`Dot`].
pub type FloatDot = fn(rows: [&[u8]; ROWS], ahead: &[u8], x: &[f32], acc: &mut [f32; ROWS]);

/// Rounds activations to the precision of the weights they meet; both slices have one length.
pub type RoundActivations = fn(x: &[f32], rounded: &mut [f32]);

/// Integer products of one type at one level.
#[derive(Clone, Copy, Debug)]
pub struct IntKernel {
    /// What the tile's numbers look like.
    pub kind: TileKind,
    /// Eight rows into a tile.
    pub unpack: UnpackTile,
    /// Whole rows with one column.
    pub dot: Dot,
    /// Tiles with some columns.
    pub multiply: Multiply,
    /// How many tiles are best multiplied together: many where the level prepares columns first.
    pub together: usize,
}

/// The kernels of one type at one level.
#[derive(Clone, Copy, Debug)]
pub enum Kernel {
    /// Integer products with Q8 activations.
    Int(IntKernel),
    /// Float products with f32 activations.
    Float {
        /// Eight rows into a panel.
        unpack: UnpackPanel,
        /// Whole rows with one column.
        dot: FloatDot,
        /// What activations are rounded to in front of the product, where the reference does so.
        round: Option<RoundActivations>,
    },
}

/// Bytes of a line of the caches.
pub const LINE: usize = 64;

/// Asks the caches for `bytes`, where the machine can be asked.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    x86::prefetch(bytes);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// The scales of both halves of a group; where they share one, the first counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scales {
    Int([i8; 2]),
    Float([f32; 2]),
}

/// The minima of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mins {
    None,
    /// Of the whole group.
    Float(f32),
    /// Of each half, in the block's unit.
    Int([u8; 2]),
}

/// One row's group of 32 values.
pub(crate) struct Group {
    pub(crate) v: [u8; GROUP],
    pub(crate) scales: Scales,
    pub(crate) mins: Mins,
}

/// A block of an integer type.
pub(crate) trait IntBlock: Stored {
    /// Groups of 32 values in a block: 8 for types with integer scales.
    const GROUPS: usize;
    /// What its groups look like.
    const KIND: TileKind;

    /// Group `g` of the block.
    fn group(&self, g: usize) -> Group;

    /// The units of integer scales and integer minima.
    fn units(&self) -> [f32; 2] {
        [0.0; 2]
    }
}

/// The kernels of a type whose unpacking is written for each level.
#[cfg(target_arch = "x86_64")]
pub(crate) fn kernel<B: x86::Unpack>(cpu: Cpu) -> Kernel {
    Kernel::Int(match cpu.level() {
        Level::Avx2 => x86::kernel::<B>(),
        Level::AvxVnni => avxvnni::kernel::<B>(),
        Level::Avx512 => avx512::kernel::<B>(),
        Level::Portable | Level::Neon => portable::kernel::<B>(),
    })
}

/// The kernels of a type whose unpacking is written for each level.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn kernel<B: IntBlock>(cpu: Cpu) -> Kernel {
    Kernel::Int(match cpu.level() {
        #[cfg(target_arch = "aarch64")]
        Level::Neon => neon::kernel::<B>(),
        #[cfg(not(target_arch = "aarch64"))]
        Level::Neon => portable::kernel::<B>(),
        Level::Portable | Level::Avx2 | Level::AvxVnni | Level::Avx512 => portable::kernel::<B>(),
    })
}

/// `map` for eight of something that is compiled into its caller, which that of arrays is not.
#[inline(always)]
pub(crate) fn each<T, U>(rows: [T; ROWS], f: impl Fn(T) -> U) -> [U; ROWS] {
    let [a, b, c, d, e, g, h, i] = rows;
    [f(a), f(b), f(c), f(d), f(e), f(g), f(h), f(i)]
}

/// The same with the numbers of the eight.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn each_of<U>(f: impl Fn(usize) -> U) -> [U; ROWS] {
    [f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)]
}

/// The same with the numbers of four.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn four<U>(f: impl Fn(usize) -> U) -> [U; 4] {
    [f(0), f(1), f(2), f(3)]
}

/// The blocks of each row that hold the groups to unpack; the check of all lengths is here, once a row.
#[inline]
fn blocks<B: IntBlock>(rows: [&[u8]; ROWS], first_group: usize, n_groups: usize) -> [&[B]; ROWS] {
    let whole = first_group.is_multiple_of(B::GROUPS) && n_groups.is_multiple_of(B::GROUPS);
    assert!(whole, "groups {first_group} + {n_groups} are not whole blocks");
    let (first, n) = (first_group / B::GROUPS, n_groups / B::GROUPS);
    let bytes = first * size_of::<B>()..(first + n) * size_of::<B>();
    each(rows, |row| {
        <[B]>::ref_from_bytes_with_elems(&row[bytes.clone()], n)
            .expect("the range has the bytes of `n` blocks")
    })
}

/// Unpacks a float type of `N` bytes a value: the portable kernel of those.
pub(crate) fn unpack_floats<const N: usize>(
    rows: [&[u8]; ROWS],
    first_col: usize,
    panel: &mut Panel,
    value: impl Fn([u8; N]) -> f32,
) {
    let n_cols = panel.n_cols();
    for (row, out) in rows.into_iter().zip(&mut panel.v) {
        let (values, _) = row[first_col * N..(first_col + n_cols) * N].as_chunks::<N>();
        for (out, bytes) in out.iter_mut().zip(values) {
            *out = value(*bytes);
        }
    }
}

/// Sums in which a float product is kept.
pub const SUMS: usize = 8;

/// Adds up to eight products of floats to the sums they belong to; what there is less counts as zeros.
#[inline]
pub fn add_products(sums: &mut [f32; SUMS], w: impl Fn(usize) -> Option<f32>, x: &[f32]) {
    for (i, sum) in sums.iter_mut().enumerate() {
        let x = x.get(i).copied().unwrap_or_default();
        *sum = w(i).unwrap_or_default().mul_add(x, *sum);
    }
}

/// The sum of all sums of a float product.
#[inline]
pub fn total([a, b, c, d, e, f, g, h]: [f32; SUMS]) -> f32 {
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// The product of a float type of `N` bytes a value with one column: the portable kernel of those.
pub(crate) fn dot_floats<const N: usize>(
    rows: [&[u8]; ROWS],
    x: &[f32],
    acc: &mut [f32; ROWS],
    value: impl Fn([u8; N]) -> f32,
) {
    for (row, acc) in rows.into_iter().zip(acc) {
        let (row, _) = row[..x.len() * N].as_chunks::<N>();
        for (row, x) in row.chunks(MAX_COLS).zip(x.chunks(MAX_COLS)) {
            let mut sums = [0.0f32; SUMS];
            for (w, x) in row.chunks(SUMS).zip(x.chunks(SUMS)) {
                add_products(&mut sums, |i| w.get(i).map(|&w| value(w)), x);
            }
            *acc += total(sums);
        }
    }
}

/// Multiplies tile after tile, with as many columns as there are sums for each.
fn each_tile(
    tiles: &[Tile],
    x: Columns<'_>,
    acc: &mut [[f32; ROWS]],
    multiply: impl Fn(&Tile, Columns<'_>, &mut [[f32; ROWS]]),
) {
    let n = n_columns(tiles, &x, acc);
    for (tile, acc) in tiles.iter().zip(acc.chunks_exact_mut(n.max(1))) {
        multiply(tile, x, acc);
    }
}

/// How many columns there are; the check of all lengths in front of products of tiles is here.
#[inline]
fn n_columns(tiles: &[Tile], x: &Columns<'_>, acc: &[[f32; ROWS]]) -> usize {
    let Some(first) = tiles.first() else {
        assert!(acc.is_empty(), "{} sums for no tiles", acc.len());
        return 0;
    };
    let n = acc.len() / tiles.len();
    let same = n * tiles.len() == acc.len() && tiles.iter().all(|tile| tile.n_groups() == first.n_groups());
    assert!(
        same,
        "{} sums for {} tiles of the same groups",
        acc.len(),
        tiles.len()
    );
    check_columns(x, first.n_groups(), n);
    n
}

/// The check of the lengths of `n` columns of some groups.
fn check_columns(x: &Columns<'_>, n_groups: usize, n: usize) {
    assert!(
        matches!(n, 1 | 2 | MAX_COLUMNS),
        "kernels take 1, 2 or {MAX_COLUMNS} columns, not {n}"
    );
    assert!(
        x.q.len() == n_groups * GROUP * n && x.scales.len() == n_groups * n,
        "{n} columns of {n_groups} groups have {} values and {} scales",
        x.q.len(),
        x.scales.len()
    );
    debug_assert!(x.q.iter().all(|&q| q != i8::MIN), "values are -127 to 127");
}

#[cfg(test)]
mod tests;
