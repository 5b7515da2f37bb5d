use super::Kernel;
use crate::registry;
use crate::test_random::Random;
use crate::tile::{GROUP, MAX_GROUPS, Panel, ROWS, Tile};
use crate::{Cpu, Format, Level};

/// Types that have kernels of their own.
fn formats() -> impl Iterator<Item = &'static Format> {
    registry::all()
        .iter()
        .copied()
        .filter(|f| (f.kernel)(Cpu::at_most(Level::Portable)).is_some())
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

/// Equal, or both NaN: which NaN an operation gives is not defined.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn decode(format: &Format, row: &[u8], n_cols: usize) -> Vec<f32> {
    let mut out = vec![0.0; n_cols];
    format.decode.expect("types here have values")(row, &mut out);
    out
}

/// Unpacks a row of tiles and gives `f` each group's place, value, scale and minimum.
fn each_value(
    format: &Format,
    level: Level,
    rows: [&[u8]; ROWS],
    n_groups: usize,
    mut f: impl FnMut(usize, usize, f32, f32, f32),
) {
    let Some(Kernel::Int { unpack, kind }) = (format.kernel)(Cpu::at_most(level)) else {
        return;
    };
    let mut tile = Tile::new();
    // Numbers that a kernel leaves out of a tile must not be used.
    tile.scale.as_flattened_mut().as_flattened_mut().fill(f32::NAN);
    tile.min.as_flattened_mut().as_flattened_mut().fill(f32::NAN);
    for first in (0..n_groups).step_by(MAX_GROUPS) {
        tile.set_groups(MAX_GROUPS.min(n_groups - first));
        unpack(rows, first, &mut tile);
        for g in 0..tile.n_groups() {
            for (at, &v) in tile.v[g].iter().enumerate() {
                let (row, col) = (at / 4 % ROWS, at / (4 * ROWS) * 4 + at % 4);
                let half = if kind.whole_group { 0 } else { col / 16 };
                let value = if kind.signed {
                    f32::from(v as i8)
                } else {
                    f32::from(v)
                };
                assert!(value.abs() <= f32::from(kind.max), "{} {value}", format.name);
                let min = if kind.has_min { tile.min[g][half][row] } else { 0.0 };
                f(
                    row,
                    (first + g) * GROUP + col,
                    value,
                    tile.scale[g][half][row],
                    min,
                );
            }
        }
    }
}

#[test]
fn levels_agree_on_any_bytes() {
    let mut random = Random::new(1);
    for format in formats() {
        let elems = format.geometry.block_elems.max(GROUP);
        let block_bytes = format.geometry.row_bytes(elems as u64).expect("whole blocks") as usize;
        for n_blocks in 1..=5 {
            for shift in [0, 1, 2, 3, 7, 16, 31] {
                let rows = Rows::new(&mut random, n_blocks * block_bytes, shift);
                let n_groups = n_blocks * elems / GROUP;
                let mut expected = Vec::new();
                each_value(format, Level::Portable, rows.rows(), n_groups, |r, c, v, s, m| {
                    expected.push((r, c, v, s, m));
                });
                for &level in Level::ALL {
                    let mut expected = expected.iter();
                    each_value(format, level, rows.rows(), n_groups, |r, c, v, s, m| {
                        let e = expected.next().expect("levels unpack as many values");
                        assert!(
                            e.0 == r && e.1 == c && e.2 == v && same(e.3, s) && same(e.4, m),
                            "{} {level:?} row {r} column {c}: {v} {s} {m}, not {e:?}",
                            format.name
                        );
                    });
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
            each_value(
                format,
                Level::Avx2,
                rows.rows(),
                n_cols / GROUP,
                |r, c, v, s, m| {
                    let (found, expected) = (f64::from(s) * f64::from(v) - f64::from(m), decoded[r][c]);
                    let size = (f64::from(s) * f64::from(v)).abs() + f64::from(m).abs();
                    let close = (found - f64::from(expected)).abs() <= 2e-7 * size;
                    let wild = !(found as f32).is_finite() && !expected.is_finite();
                    assert!(
                        close || wild,
                        "{} row {r} column {c}: {found}, not {expected}",
                        format.name
                    );
                },
            );
        }
    }
}

#[test]
fn panels_hold_what_the_decoder_gives() {
    let mut random = Random::new(3);
    for format in formats() {
        for &level in Level::ALL {
            let Some(Kernel::Float { unpack, .. }) = (format.kernel)(Cpu::at_most(level)) else {
                continue;
            };
            for n_cols in [1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 33, 100] {
                let n_bytes = format.geometry.row_bytes(n_cols as u64).expect("whole blocks") as usize;
                let rows = Rows::new(&mut random, n_bytes, n_cols % 5);
                let decoded = rows.rows().map(|row| decode(format, row, n_cols));
                for first_col in [0, n_cols / 3, n_cols - 1] {
                    let mut panel = Panel::new();
                    panel.set_cols(n_cols - first_col);
                    unpack(rows.rows(), first_col, &mut panel);
                    for (i, lanes) in panel.v[..panel.n_cols()].iter().enumerate() {
                        for r in 0..ROWS {
                            let (found, expected) = (lanes[r], decoded[r][first_col + i]);
                            assert!(
                                same(found, expected),
                                "{} {level:?} {found} {expected}",
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
        let portable = (format.kernel)(Cpu::at_most(Level::Portable)).is_some();
        for &level in Level::ALL {
            let kernel = (format.kernel)(Cpu::at_most(level));
            assert_eq!(kernel.is_some(), portable, "{} {level:?}", format.name);
        }
    }
}
