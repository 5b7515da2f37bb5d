//! Integer products in plain Rust, for any block.

use super::{Columns, Group, IntBlock, IntKernel, Mins, Scales, blocks, check_columns, each_tile};
use crate::activation::GroupScale;
use crate::tile::{GROUP, HALF, MAX_GROUPS, Minima, ROWS, Tile, TileKind};

/// The kernels of a type.
pub(super) fn kernel<B: IntBlock>() -> IntKernel {
    IntKernel {
        kind: B::KIND,
        unpack: unpack::<B>,
        dot: |rows, _, x, tile, acc| {
            dot::<B>(rows, x, tile, acc, |tile, x, acc| multiply(B::KIND, tile, x, acc));
        },
        multiply: |tiles, x, _, acc| each_tile(tiles, x, acc, |tile, x, acc| multiply(B::KIND, tile, x, acc)),
        together: 1,
    }
}

fn unpack<B: IntBlock>(rows: [&[u8]; ROWS], first_group: usize, tile: &mut Tile) {
    let blocks = blocks::<B>(rows, first_group, tile.n_groups());
    for (row, blocks) in blocks.into_iter().enumerate() {
        for (b, block) in blocks.iter().enumerate() {
            set_block(block, tile, b * B::GROUPS, row);
        }
    }
}

/// One row's block, whose groups are those from `first` on.
pub(super) fn set_block<B: IntBlock>(block: &B, tile: &mut Tile, first: usize, row: usize) {
    [tile.unit[row], tile.min_unit[row]] = block.units();
    for g in 0..B::GROUPS {
        let Group { v, scales, mins } = block.group(g);
        let group = first + g;
        tile.set_values(group, row, &v);
        match scales {
            Scales::Int(scales) => tile.set_int_scales(B::KIND, group, row, scales),
            Scales::Float([low, high]) => {
                tile.scale[group][0][row] = low;
                tile.scale[group][1][row] = high;
            }
        }
        match mins {
            Mins::None => {}
            Mins::Float(min) => tile.min[group][row] = min,
            Mins::Int(mins) => tile.int_min[group][row] = mins.map(i16::from),
        }
    }
}

/// Tile after tile, each multiplied by `multiply`.
pub(super) fn dot<B: IntBlock>(
    rows: [&[u8]; ROWS],
    x: Columns<'_>,
    tile: &mut Tile,
    acc: &mut [f32; ROWS],
    multiply: fn(&Tile, Columns<'_>, &mut [[f32; ROWS]]),
) {
    let n_groups = x.scales.len();
    for first in (0..n_groups).step_by(MAX_GROUPS) {
        let n = MAX_GROUPS.min(n_groups - first);
        tile.set_groups(n);
        unpack::<B>(rows, first, tile);
        let x = Columns {
            q: &x.q[first * GROUP..(first + n) * GROUP],
            scales: &x.scales[first..first + n],
        };
        multiply(tile, x, std::slice::from_mut(acc));
    }
}

fn multiply(kind: TileKind, tile: &Tile, x: Columns<'_>, acc: &mut [[f32; ROWS]]) {
    let n = acc.len();
    check_columns(&x, tile.n_groups(), n);
    for (c, acc) in acc.iter_mut().enumerate() {
        for (r, acc) in acc.iter_mut().enumerate() {
            *acc = element(kind, tile, &x, (n, c), r, *acc);
        }
    }
}

/// Row `r` with column `c` of `n`.
fn element(
    kind: TileKind,
    tile: &Tile,
    x: &Columns<'_>,
    (n, c): (usize, usize),
    r: usize,
    mut acc: f32,
) -> f32 {
    let (mut sum, mut min_sum) = (0.0f32, 0.0f32);
    let groups = x.q.chunks_exact(n * GROUP).zip(x.scales.chunks_exact(n));
    for (g, (q, s)) in groups.clone().enumerate() {
        let s = &s[c];
        let halves = halves(kind, tile, g, r, q, (n, c), s);
        if kind.int_scales {
            let scales = tile.int_scale[g].map(|half| i32::from(half[r][0]));
            let high = if kind.halves { scales[1] } else { scales[0] };
            let i = scales[0] * halves[0] + high * halves[1];
            sum = (i as f32).mul_add(s.d, sum);
            continue;
        }
        if kind.halves {
            for (half, i) in halves.into_iter().enumerate() {
                acc = (i as f32).mul_add(tile.scale[g][half][r] * s.d, acc);
            }
        } else {
            acc = ((halves[0] + halves[1]) as f32).mul_add(tile.scale[g][0][r] * s.d, acc);
        }
        if kind.mins == Minima::Float {
            acc = (-tile.min[g][r]).mul_add(s.sum, acc);
        }
    }
    if !kind.int_scales {
        return acc;
    }
    acc = tile.unit[r].mul_add(sum, acc);
    for (g, (_, s)) in groups.enumerate() {
        let s = &s[c];
        match kind.mins {
            Minima::None => {}
            Minima::Float => acc = (-tile.min[g][r]).mul_add(s.sum, acc),
            Minima::Int => {
                let [low, high] = tile.int_min[g][r].map(i32::from);
                let i = low * i32::from(s.int[0]) + high * i32::from(s.int[1]);
                min_sum = (i as f32).mul_add(s.d, min_sum);
            }
        }
    }
    if kind.mins == Minima::Int {
        acc = (-tile.min_unit[r]).mul_add(min_sum, acc);
    }
    acc
}

/// `sum((v - offset) * q)` of both halves of a group.
fn halves(
    kind: TileKind,
    tile: &Tile,
    g: usize,
    r: usize,
    q: &[i8],
    (n, c): (usize, usize),
    s: &GroupScale,
) -> [i32; 2] {
    let mut sums = s.int.map(|sum| -i32::from(kind.offset) * i32::from(sum));
    let rows = |v: &[u8; GROUP * ROWS], chunk: usize| -> [i32; 4] {
        let at = (chunk * ROWS + r) * 4;
        [v[at], v[at + 1], v[at + 2], v[at + 3]].map(i32::from)
    };
    for (chunk, q) in q.chunks_exact(4 * n).enumerate() {
        for (v, &q) in rows(&tile.v[g], chunk).into_iter().zip(&q[4 * c..]) {
            sums[4 * chunk / HALF] += v * i32::from(q);
        }
    }
    sums
}
