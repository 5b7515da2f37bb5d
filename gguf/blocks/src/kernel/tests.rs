#[cfg(unix)]
mod guard;
mod quantized;

use quantized::{Quantized, assert_same, by_tiles, same};

use super::{Columns, IntKernel, Kernel, MAX_COLUMNS};
use crate::activation::{GroupScale, quantize};
use crate::registry;
use crate::test_random::Random;
use crate::tile::{GROUP, HALF, MAX_GROUPS, Minima, Panel, ROWS, Spread, Tile};
use crate::{Cpu, Format, Level};

/// Types that have kernels of their own.
fn formats() -> impl Iterator<Item = &'static Format> {
    registry::all()
        .iter()
        .copied()
        .filter(|f| (f.kernel)(portable()).is_some())
}

fn portable() -> Cpu {
    Cpu::at_most(Level::Portable)
}

/// Rows of random bytes in exact-length allocations, `shift` bytes into them.
struct Rows {
    bytes: [Vec<u8>; ROWS],
    shift: usize,
}

impl Rows {
    fn new(random: &mut Random, n_bytes: usize, shift: usize) -> Self {
        Self {
            bytes: std::array::from_fn(|_| (0..n_bytes + shift).map(|_| random.u32() as u8).collect()),
            shift,
        }
    }

    fn rows(&self) -> [&[u8]; ROWS] {
        self.bytes.each_ref().map(|b| &b[self.shift..])
    }
}

fn decode(format: &Format, row: &[u8], n_cols: usize) -> Vec<f32> {
    let mut out = vec![0.0; n_cols];
    format.decode.expect("types here have values")(row, &mut out);
    out
}

fn int_kernel(format: &Format, cpu: Cpu) -> Option<IntKernel> {
    match (format.kernel)(cpu) {
        Some(Kernel::Int(kernel)) => Some(kernel),
        _ => None,
    }
}

/// The parts of a value: `scale * (v - offset) - min`.
#[derive(Debug)]
struct Parts {
    row: usize,
    col: usize,
    v: f32,
    scale: f32,
    min: f32,
}

/// The values of a row of tiles.
fn values(format: &Format, cpu: Cpu, rows: [&[u8]; ROWS], n_groups: usize) -> Vec<Parts> {
    let Some(IntKernel { kind, unpack, .. }) = int_kernel(format, cpu) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    let mut tile = Tile::new();
    // Numbers that a kernel leaves out of a tile must not be used.
    tile.scale.as_flattened_mut().as_flattened_mut().fill(f32::NAN);
    tile.min.as_flattened_mut().fill(f32::NAN);
    for first in (0..n_groups).step_by(MAX_GROUPS) {
        tile.set_groups(MAX_GROUPS.min(n_groups - first));
        unpack(rows, first, &mut tile);
        for g in 0..tile.n_groups() {
            for (at, &v) in tile.v[g].iter().enumerate() {
                let (row, col) = (at / 4 % ROWS, at / (4 * ROWS) * 4 + at % 4);
                let half = if kind.halves { col / HALF } else { 0 };
                let v = i16::from(v);
                assert!(v <= i16::from(kind.max), "{} {v}", format.name);
                let scale = if kind.int_scales {
                    let scale = tile.int_scale[g][half][row];
                    assert_eq!(scale[0], scale[1]);
                    if kind.offset > 0 {
                        let lower = tile.lower[g][row][col / HALF];
                        assert_eq!(lower, -i16::from(kind.offset) * scale[0], "{}", format.name);
                    }
                    tile.unit[row] * f32::from(scale[0])
                } else {
                    tile.scale[g][half][row]
                };
                let min = match kind.mins {
                    Minima::None => 0.0,
                    Minima::Float => tile.min[g][row],
                    Minima::Int => tile.min_unit[row] * f32::from(tile.int_min[g][row][col / HALF]),
                };
                out.push(Parts {
                    row,
                    col: (first + g) * GROUP + col,
                    v: f32::from(v - i16::from(kind.offset)),
                    scale,
                    min,
                });
            }
        }
    }
    out
}

#[test]
fn levels_unpack_any_bytes_alike() {
    let mut random = Random::new(1);
    for format in formats() {
        let elems = format.geometry.block_elems.max(GROUP);
        let block_bytes = format.geometry.row_bytes(elems as u64).expect("whole blocks") as usize;
        for n_blocks in 1..=5 {
            for shift in [0, 1, 2, 3, 7, 16, 31] {
                let rows = Rows::new(&mut random, n_blocks * block_bytes, shift);
                let n_groups = n_blocks * elems / GROUP;
                let expected = values(format, portable(), rows.rows(), n_groups);
                for cpu in Cpu::available() {
                    let found = values(format, cpu, rows.rows(), n_groups);
                    assert_eq!(found.len(), expected.len());
                    for (f, e) in found.iter().zip(&expected) {
                        assert!(
                            (f.row, f.col, f.v) == (e.row, e.col, e.v)
                                && same(f.scale, e.scale)
                                && same(f.min, e.min),
                            "{} {cpu:?} {f:?}, not {e:?}",
                            format.name
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn tiles_hold_what_the_decoder_gives() {
    let mut random = Random::new(2);
    for format in formats() {
        let n_cols = 512;
        let n_bytes = format.geometry.row_bytes(n_cols as u64).expect("whole blocks") as usize;
        for _ in 0..20 {
            let rows = Rows::new(&mut random, n_bytes, 1);
            let decoded = rows.rows().map(|row| decode(format, row, n_cols));
            for p in values(format, Cpu::best(), rows.rows(), n_cols / GROUP) {
                let product = f64::from(p.scale) * f64::from(p.v);
                let (found, expected) = (product - f64::from(p.min), decoded[p.row][p.col]);
                let size = product.abs() + f64::from(p.min).abs();
                let close = (found - f64::from(expected)).abs() <= 4e-7 * size;
                let wild = !(found as f32).is_finite() && !expected.is_finite();
                assert!(close || wild, "{} {p:?}, not {expected}", format.name);
            }
        }
    }
}

/// `n` columns of random values.
fn columns(random: &mut Random, n: usize, n_groups: usize) -> Quantized {
    let len = n_groups * GROUP;
    let x: Vec<f32> = (0..n * len).map(|_| random.normal()).collect();
    Quantized::new(Cpu::best(), n, len, &x)
}

#[test]
fn levels_multiply_any_bytes_alike() {
    let mut random = Random::new(4);
    for format in formats() {
        let elems = format.geometry.block_elems.max(GROUP);
        let block_bytes = format.geometry.row_bytes(elems as u64).expect("whole blocks") as usize;
        for n_blocks in [1, 2, 5, 9] {
            let rows = Rows::new(&mut random, n_blocks * block_bytes, n_blocks);
            for n in [1, 2, MAX_COLUMNS] {
                let x = columns(&mut random, n, n_blocks * elems / GROUP);
                let Some(kernel) = int_kernel(format, portable()) else {
                    continue;
                };
                let expected = by_tiles(&kernel, rows.rows(), &x);
                for cpu in Cpu::available() {
                    let kernel = int_kernel(format, cpu).expect("as at the portable level");
                    let what = format!("{} {cpu:?} {n_blocks} blocks, {n} columns", format.name);
                    assert_same(&by_tiles(&kernel, rows.rows(), &x), &expected, &what);
                    if n == 1 {
                        let mut acc = [[0.5; ROWS]];
                        let all = x.groups(0..x.n_groups());
                        (kernel.dot)(rows.rows(), &[], all, &mut Tile::new(), &mut acc[0]);
                        assert_same(&acc, &expected, &what);
                    }
                }
            }
        }
    }
}

/// Tiles that meet the same columns, as many as share what a level makes of these.
#[test]
fn tiles_are_multiplied_together_as_one_by_one() {
    const N_TILES: usize = 5;
    let (mut random, mut spread) = (Random::new(5), Spread::new());
    for format in formats() {
        let Some(IntKernel { unpack, multiply, .. }) = int_kernel(format, portable()) else {
            continue;
        };
        let whole = format.geometry.block_elems.div_ceil(GROUP);
        for n_groups in [MAX_GROUPS, whole, (3 * whole).min(MAX_GROUPS)] {
            let n_bytes = format.geometry.row_bytes((n_groups * GROUP) as u64);
            let n_bytes = n_bytes.expect("whole blocks") as usize;
            let mut tiles = vec![*Tile::new(); N_TILES];
            for tile in &mut tiles {
                tile.set_groups(n_groups);
                unpack(Rows::new(&mut random, n_bytes, 0).rows(), 0, tile);
            }
            for n in [MAX_COLUMNS, 1, 2] {
                let x = columns(&mut random, n, n_groups);
                let x = x.groups(0..n_groups);
                let mut expected = vec![[0.5; ROWS]; N_TILES * n];
                for (tile, acc) in tiles.chunks(1).zip(expected.chunks_mut(n)) {
                    multiply(tile, x, &mut spread, acc);
                }
                for cpu in Cpu::available() {
                    let kernel = int_kernel(format, cpu).expect("as at the portable level");
                    let mut found = vec![[0.5; ROWS]; N_TILES * n];
                    (kernel.multiply)(&tiles, x, &mut spread, &mut found);
                    let what = format!("{} {cpu:?} {n_groups} groups, {n} columns", format.name);
                    assert_same(&found, &expected, &what);
                }
            }
        }
    }
}

/// Sums of 16 bits are as near to their limits as they come.
#[test]
fn levels_multiply_the_largest_values_alike() {
    let mut random = Random::new(6);
    for format in formats() {
        let Some(kernel) = int_kernel(format, portable()) else {
            continue;
        };
        let n_bytes = format
            .geometry
            .row_bytes((MAX_GROUPS * GROUP) as u64)
            .expect("whole blocks") as usize;
        // Finite numbers as halves, too, which scales are.
        for byte in [0x80, 0x7b, 0xfb, 0x3f, 0x00] {
            let row = vec![byte; n_bytes];
            let rows = [&row[..]; ROWS];
            for (n, signs) in [(MAX_COLUMNS, 1), (1, 1), (2, -1), (MAX_COLUMNS, 0), (1, 0)] {
                let mut x = columns(&mut random, n, MAX_GROUPS);
                let mut sign = || match signs {
                    0 => (random.u32() & 2) as i8 - 1,
                    one => one,
                };
                x.q.fill_with(|| 127 * sign());
                for (g, scale) in x.scales.iter_mut().enumerate() {
                    let (group, c) = (g / n, g % n);
                    let q = |i: usize| i16::from(x.q[((group * GROUP + i) / 4 * n + c) * 4 + i % 4]);
                    let sum = |from: usize| (from..from + HALF).map(q).sum();
                    scale.int = [sum(0), sum(HALF)];
                }
                let expected = by_tiles(&kernel, rows, &x);
                for cpu in Cpu::available() {
                    let kernel = int_kernel(format, cpu).expect("as at the portable level");
                    let what = format!("{} {cpu:?} {byte:#x}, {n} columns {signs}", format.name);
                    assert_same(&by_tiles(&kernel, rows, &x), &expected, &what);
                    if n == 1 {
                        let (mut acc, all) = ([[0.5; ROWS]], x.groups(0..MAX_GROUPS));
                        (kernel.dot)(rows, &[], all, &mut Tile::new(), &mut acc[0]);
                        assert_same(&acc, &expected, &what);
                    }
                }
            }
        }
    }
}

/// The same with every number of a tile at its limit.
#[test]
fn levels_multiply_full_tiles_alike() {
    let mut random = Random::new(8);
    for format in formats() {
        let Some(IntKernel { kind, multiply, .. }) = int_kernel(format, portable()) else {
            continue;
        };
        for _ in 0..20 {
            let mut low = || random.u32() & 4 == 0;
            let mut tile = Tile::new();
            tile.set_groups(MAX_GROUPS);
            for (g, r) in (0..MAX_GROUPS).flat_map(|g| (0..ROWS).map(move |r| (g, r))) {
                tile.set_values(g, r, &[if low() { 0 } else { kind.max }; GROUP]);
                let scales = [low(), low()].map(|low| if low { i8::MIN } else { i8::MAX });
                tile.set_int_scales(kind, g, r, scales);
                tile.int_min[g][r] = [if low() { 0 } else { 255 }; 2];
            }
            tile.scale.as_flattened_mut().as_flattened_mut().fill(0.5);
            (tile.unit, tile.min_unit) = ([0.25; ROWS], [0.125; ROWS]);
            let mut x = columns(&mut random, MAX_COLUMNS, MAX_GROUPS);
            let sign = if random.u32() & 4 == 0 { 1 } else { -1 };
            x.q.fill(127 * sign);
            for scale in &mut x.scales {
                scale.int = [127 * 16 * i16::from(sign); 2];
            }
            let (tiles, x) = (std::slice::from_ref(&*tile), x.groups(0..MAX_GROUPS));
            let mut expected = [[0.5; ROWS]; MAX_COLUMNS];
            multiply(tiles, x, &mut Spread::new(), &mut expected);
            for cpu in Cpu::available() {
                let kernel = int_kernel(format, cpu).expect("as at the portable level");
                let mut found = [[0.5; ROWS]; MAX_COLUMNS];
                (kernel.multiply)(tiles, x, &mut Spread::new(), &mut found);
                assert_same(&found, &expected, &format!("{} {cpu:?}", format.name));
            }
        }
    }
}

/// Which tiles and sums belong together is checked in front of every product.
#[test]
fn tiles_that_do_not_fit_are_refused() {
    let kernel = int_kernel(formats().find(|f| f.name == "Q8_0").expect("a type"), Cpu::best());
    let kernel = kernel.expect("it has kernels");
    let x = columns(&mut Random::new(7), 2, 2);
    let refused = |groups: [usize; 2], n_sums: usize| {
        let tiles = groups.map(|n| {
            let mut tile = *Tile::new();
            tile.set_groups(n);
            tile
        });
        let mut acc = vec![[0.0; ROWS]; n_sums];
        let multiply = || (kernel.multiply)(&tiles, x.groups(0..2), &mut Spread::new(), &mut acc);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(multiply)).is_err()
    };
    assert!(!refused([2, 2], 4));
    assert!(refused([2, 1], 4) && refused([1, 1], 4) && refused([2, 2], 3) && refused([2, 2], 8));
}
#[test]
fn panels_hold_what_the_decoder_gives() {
    let mut random = Random::new(3);
    for format in formats() {
        for cpu in Cpu::available() {
            let Some(Kernel::Float { unpack, dot, .. }) = (format.kernel)(cpu) else {
                continue;
            };
            for n_cols in [1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 33, 100] {
                let n_bytes = format.geometry.row_bytes(n_cols as u64).expect("whole blocks") as usize;
                let rows = Rows::new(&mut random, n_bytes, n_cols % 5);
                let decoded = rows.rows().map(|row| decode(format, row, n_cols));
                let x: Vec<f32> = (0..n_cols).map(|_| random.normal()).collect();
                let (mut found, mut expected) = ([0.5; ROWS], [0.5; ROWS]);
                dot(rows.rows(), &[], &x, &mut found);
                if let Some(Kernel::Float { dot, .. }) = (format.kernel)(portable()) {
                    dot(rows.rows(), &[], &x, &mut expected);
                }
                assert_same(
                    &[found],
                    &[expected],
                    &format!("{} {cpu:?} {n_cols} columns", format.name),
                );
                for first_col in [0, n_cols / 3, n_cols - 1] {
                    let mut panel = Panel::new();
                    panel.set_cols(n_cols - first_col);
                    unpack(rows.rows(), first_col, &mut panel);
                    for (row, decoded) in panel.v.iter().zip(&decoded) {
                        let n = panel.n_cols();
                        for (&found, &expected) in row[..n].iter().zip(&decoded[first_col..]) {
                            assert!(
                                same(found, expected),
                                "{} {cpu:?} {found} {expected}",
                                format.name
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Types without kernels are multiplied by their decoder, at every level.
#[test]
fn a_type_has_kernels_at_every_level_or_at_none() {
    for format in registry::all() {
        let expected = (format.kernel)(portable()).is_some();
        for cpu in Cpu::available() {
            let kernel = (format.kernel)(cpu);
            assert_eq!(kernel.is_some(), expected, "{} {cpu:?}", format.name);
        }
    }
}
