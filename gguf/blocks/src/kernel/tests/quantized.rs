//! Columns as kernels take them, and products with them tile after tile; the fuzz target of the kernels uses this file,
//! too.

use super::{Columns, Cpu, GROUP, GroupScale, IntKernel, MAX_GROUPS, ROWS, Spread, Tile, quantize};

pub(super) struct Quantized {
    pub(super) n: usize,
    pub(super) q: Vec<i8>,
    pub(super) scales: Vec<GroupScale>,
}

impl Quantized {
    /// `n` columns of `len` values, the first ones of `x`.
    pub(super) fn new(cpu: Cpu, n: usize, len: usize, x: &[f32]) -> Self {
        let mut q = vec![0; n * len];
        let mut scales = vec![GroupScale::default(); n * len / GROUP];
        for (c, x) in x.chunks_exact(len).take(n).enumerate() {
            let mut one = (vec![0; len], vec![GroupScale::default(); len / GROUP]);
            quantize(cpu, x, &mut one.0, &mut one.1);
            for (i, four) in one.0.chunks_exact(4).enumerate() {
                q[(i * n + c) * 4..][..4].copy_from_slice(four);
            }
            for (g, scale) in one.1.into_iter().enumerate() {
                scales[g * n + c] = scale;
            }
        }
        Self { n, q, scales }
    }

    /// A range of groups of all columns.
    pub(super) fn groups(&self, groups: std::ops::Range<usize>) -> Columns<'_> {
        let groups = groups.start * self.n..groups.end * self.n;
        Columns {
            q: &self.q[groups.start * GROUP..groups.end * GROUP],
            scales: &self.scales[groups],
        }
    }

    /// Groups of a column.
    pub(super) fn n_groups(&self) -> usize {
        self.scales.len() / self.n
    }
}

/// The products of eight rows with every column, added to 0.5.
pub(super) fn by_tiles(kernel: &IntKernel, rows: [&[u8]; ROWS], x: &Quantized) -> Vec<[f32; ROWS]> {
    let (mut tile, mut spread, mut acc) = (Tile::new(), Spread::new(), vec![[0.5; ROWS]; x.n]);
    let n_groups = x.n_groups();
    for first in (0..n_groups).step_by(MAX_GROUPS) {
        let n = MAX_GROUPS.min(n_groups - first);
        tile.set_groups(n);
        (kernel.unpack)(rows, first, &mut tile);
        let tiles = std::slice::from_ref(&*tile);
        (kernel.multiply)(tiles, x.groups(first..first + n), &mut spread, &mut acc);
    }
    acc
}

/// Equal, or both NaN: which NaN an operation gives is not defined.
pub(super) fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

pub(super) fn assert_same(a: &[[f32; ROWS]], b: &[[f32; ROWS]], what: &str) {
    let mut pairs = a.as_flattened().iter().zip(b.as_flattened());
    assert!(pairs.all(|(a, b)| same(*a, *b)), "{what}: {a:?}, not {b:?}");
}
