//! Products of tiles of bytes with quantized activations.
//!
//! For one column and one group of 32 columns of eight rows, in this order and in f32 without fusing:
//! for each half (or once for types whose halves share a scale) `acc += (scale * d) * sum(v * q)`, then for
//! types with minima `acc -= min * (d * sum(q))`. The sums over bytes are exact, so a level may add them in any
//! order. Rows lie in lanes and never meet, so a result does not depend on how rows or columns are grouped.

use gguf_blocks::activation::{GROUP, Q8Row};
use gguf_blocks::tile::{ROWS, Tile, TileKind};
use gguf_blocks::{Cpu, Level};

use super::acts::Acts;

/// `acc[p] += tile . x[source[p]]` for every pair, over the groups of `tile`, which starts at `first_group`.
pub(super) fn multiply(
    cpu: Cpu,
    kind: TileKind,
    tile: &Tile,
    x: &Acts,
    first_group: usize,
    source: &[u32],
    acc: &mut [[f32; ROWS]],
) {
    assert_eq!(source.len(), acc.len(), "a pair has one sum");
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::multiply_tile(kind, tile, x, first_group, source, acc),
        _ => {
            for (&row, acc) in source.iter().zip(acc) {
                column(
                    kind,
                    tile,
                    groups(x.q8_row(row as usize), first_group, tile.n_groups()),
                    acc,
                );
            }
        }
    }
}

/// A stretch of a row.
#[inline]
pub(super) fn groups(row: Q8Row<'_>, first: usize, n: usize) -> Q8Row<'_> {
    Q8Row {
        q: &row.q[first * GROUP..(first + n) * GROUP],
        scales: &row.scales[first..first + n],
    }
}

fn column(kind: TileKind, tile: &Tile, x: Q8Row<'_>, acc: &mut [f32; ROWS]) {
    for (g, (q, s)) in x.q.as_chunks::<GROUP>().0.iter().zip(x.scales).enumerate() {
        let sums = sums(kind.signed, &tile.v[g], q);
        let (scale, min) = (&tile.scale[g], &tile.min[g]);
        for r in 0..ROWS {
            if kind.whole_group {
                acc[r] += (scale[0][r] * s.d) * (sums[0][r] + sums[1][r]) as f32;
                if kind.has_min {
                    acc[r] -= min[0][r] * s.sum;
                }
            } else {
                for half in 0..2 {
                    acc[r] += (scale[half][r] * s.d) * sums[half][r] as f32;
                    if kind.has_min {
                        acc[r] -= min[half][r] * s.half[half];
                    }
                }
            }
        }
    }
}

/// `sum(v * q)` of both halves of a group, for each row.
fn sums(signed: bool, v: &[u8; GROUP * ROWS], q: &[i8; GROUP]) -> [[i32; ROWS]; 2] {
    let mut sums = [[0; ROWS]; 2];
    let chunks = v.as_chunks::<{ 4 * ROWS }>().0.iter().zip(q.as_chunks::<4>().0);
    for (chunk, (v, q)) in chunks.enumerate() {
        for (sum, v) in sums[chunk / 4].iter_mut().zip(v.as_chunks::<4>().0) {
            for (&v, &q) in v.iter().zip(q) {
                let v = if signed { i32::from(v as i8) } else { i32::from(v) };
                *sum += v * i32::from(q);
            }
        }
    }
    sums
}
