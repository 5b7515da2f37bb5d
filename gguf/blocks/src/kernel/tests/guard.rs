//! Every kernel, with each operand right in front of or right behind a page that nobody may touch: code that reads or
//! writes a byte outside ends the test with a fault. A shift moves the operands away from the page, so that they begin
//! at any place in a line of the cache.

use super::*;
use crate::Importance;
use crate::guard::Guarded;
use crate::half_bulk::{
    bf16_slice_to_f32, bf16_to_f32, f16_slice_to_f32, f16_to_f32, f32_slice_to_bf16, f32_slice_to_f16,
    f32_to_bf16, f32_to_f16,
};
use crate::kernel::{FloatDot, RoundActivations, UnpackPanel};

/// Bytes that operands are moved by.
const SHIFTS: std::ops::Range<usize> = 0..64;

/// Where operands lie.
#[derive(Clone, Copy, Debug)]
struct At {
    end: bool,
    shift: usize,
}

impl At {
    fn all() -> impl Iterator<Item = Self> {
        SHIFTS.flat_map(|shift| [false, true].map(|end| Self { end, shift }))
    }

    fn put<T: Clone>(self, data: &[T]) -> Guarded<T> {
        Guarded::new(data, self.end, self.shift)
    }
}

/// Tile after tile, as `by_tiles`, with rows that are guarded already.
fn multiply(kernel: &IntKernel, rows: [&[u8]; ROWS], x: &Quantized, at: At) -> Vec<[f32; ROWS]> {
    let mut tile = at.put(std::slice::from_ref(&*Tile::new()));
    let mut acc = at.put(&vec![[0.5; ROWS]; x.n]);
    let n_groups = x.n_groups();
    for first in (0..n_groups).step_by(MAX_GROUPS) {
        let n = MAX_GROUPS.min(n_groups - first);
        let tile = &mut tile.slice_mut()[0];
        tile.set_groups(n);
        (kernel.unpack)(rows, first, tile);
        let columns = x.groups(first..first + n);
        let (q, scales) = (at.put(columns.q), at.put(columns.scales));
        let (q, scales) = (q.slice(), scales.slice());
        let tiles = std::slice::from_ref(&*tile);
        (kernel.multiply)(tiles, Columns { q, scales }, &mut Spread::new(), acc.slice_mut());
    }
    acc.slice().to_vec()
}

/// The product with one column, with rows that are guarded already.
fn dot(kernel: &IntKernel, rows: [&[u8]; ROWS], x: &Quantized, at: At) -> [f32; ROWS] {
    let mut tile = at.put(std::slice::from_ref(&*Tile::new()));
    let mut acc = at.put(&[[0.5; ROWS]]);
    let (q, scales) = (at.put(&x.q), at.put(&x.scales));
    let (q, scales) = (q.slice(), scales.slice());
    let x = Columns { q, scales };
    (kernel.dot)(
        rows,
        rows[0],
        x,
        &mut tile.slice_mut()[0],
        &mut acc.slice_mut()[0],
    );
    acc.slice()[0]
}

#[test]
fn integer_products_stay_within_their_operands() {
    let mut random = Random::new(5);
    for format in formats() {
        let Some(portable) = int_kernel(format, super::portable()) else {
            continue;
        };
        let elems = format.geometry.block_elems.max(GROUP);
        let block_bytes = format.geometry.row_bytes(elems as u64).expect("whole blocks") as usize;
        // One tile and no more, then what does not fill the second one.
        let full = MAX_GROUPS * GROUP / elems;
        for n_blocks in (1..=full.min(3)).chain([full + 1, 2 * full + 1]) {
            let rows = Rows::new(&mut random, n_blocks * block_bytes, 0);
            let columns = [1, 2, MAX_COLUMNS];
            let columns = columns.map(|n| super::columns(&mut random, n, n_blocks * elems / GROUP));
            let expected = columns.each_ref().map(|x| by_tiles(&portable, rows.rows(), x));
            for at in At::all() {
                let rows = rows.rows().map(|row| at.put(row));
                let rows = rows.each_ref().map(Guarded::slice);
                for cpu in Cpu::available() {
                    let kernel = int_kernel(format, cpu).expect("as at the portable level");
                    let what = format!("{} {cpu:?} {n_blocks} blocks {at:?}", format.name);
                    for (x, expected) in columns.iter().zip(&expected) {
                        assert_same(&multiply(&kernel, rows, x, at), expected, &what);
                    }
                    assert_same(&[dot(&kernel, rows, &columns[0], at)], &expected[0], &what);
                }
            }
        }
    }
}

fn float_kernel(format: &Format, cpu: Cpu) -> Option<(UnpackPanel, FloatDot, Option<RoundActivations>)> {
    match (format.kernel)(cpu) {
        Some(Kernel::Float { unpack, dot, round }) => Some((unpack, dot, round)),
        _ => None,
    }
}

#[test]
fn float_kernels_stay_within_their_operands() {
    let mut random = Random::new(6);
    for format in formats() {
        let Some((portable, portable_dot, portable_round)) = float_kernel(format, super::portable()) else {
            continue;
        };
        for n_cols in (1..=20).chain([31, 100, crate::tile::MAX_COLS]) {
            let n_bytes = format.geometry.row_bytes(n_cols as u64).expect("whole blocks") as usize;
            let rows = Rows::new(&mut random, n_bytes, 0);
            let first_col = n_cols / 3;
            let mut expected = Panel::new();
            expected.set_cols(n_cols - first_col);
            portable(rows.rows(), first_col, &mut expected);
            let x: Vec<f32> = (0..n_cols).map(|_| random.normal()).collect();
            let mut sums = [0.5; ROWS];
            portable_dot(rows.rows(), &[], &x, &mut sums);
            let mut rounded = vec![0.0; n_cols];
            if let Some(round) = portable_round {
                round(&x, &mut rounded);
            }
            for at in At::all() {
                let rows = rows.rows().map(|row| at.put(row));
                let rows = rows.each_ref().map(Guarded::slice);
                for cpu in Cpu::available() {
                    let what = format!("{} {cpu:?} {n_cols} columns {at:?}", format.name);
                    let (unpack, dot, round) = float_kernel(format, cpu).expect("as at the portable level");
                    let mut panel = Panel::new();
                    panel.set_cols(n_cols - first_col);
                    let mut panel = at.put(std::slice::from_ref(&*panel));
                    unpack(rows, first_col, &mut panel.slice_mut()[0]);
                    for (found, expected) in panel.slice()[0].v.iter().zip(&expected.v) {
                        assert_all_same(found, expected, &what);
                    }
                    let mut found = at.put(&[[0.5; ROWS]]);
                    dot(rows, rows[0], at.put(&x).slice(), &mut found.slice_mut()[0]);
                    assert_all_same(&found.slice()[0], &sums, &what);
                    if let Some(round) = round {
                        let mut found = at.put(&vec![0.0; n_cols]);
                        round(at.put(&x).slice(), found.slice_mut());
                        assert_all_same(found.slice(), &rounded, &what);
                    }
                }
            }
        }
    }
}

fn assert_all_same(found: &[f32], expected: &[f32], what: &str) {
    let equal = found.iter().zip(expected).all(|(a, b)| same(*a, *b));
    assert!(
        found.len() == expected.len() && equal,
        "{what}: {found:?}, not {expected:?}"
    );
}

#[test]
fn quantization_of_activations_stays_within_its_operands() {
    let mut random = Random::new(7);
    for n_groups in 0..=9 {
        let x: Vec<f32> = (0..n_groups * GROUP).map(|_| random.normal()).collect();
        let empty = (vec![0; x.len()], vec![GroupScale::default(); n_groups]);
        let mut expected = empty.clone();
        quantize(super::portable(), &x, &mut expected.0, &mut expected.1);
        for at in At::all() {
            for cpu in Cpu::available() {
                let (mut q, mut scales) = (at.put(&empty.0), at.put(&empty.1));
                let x = at.put(&x);
                quantize(cpu, x.slice(), q.slice_mut(), scales.slice_mut());
                assert_eq!(q.slice(), expected.0, "{cpu:?} {n_groups} {at:?}");
                assert_eq!(scales.slice(), expected.1, "{cpu:?} {n_groups} {at:?}");
            }
        }
    }
}

/// Conversions choose the level by themselves.
#[test]
fn conversions_of_halves_stay_within_their_operands() {
    let mut random = Random::new(8);
    for n in (0..=40).chain([63, 64, 65, 127, 1000]) {
        let halves: Vec<[u8; 2]> = (0..n).map(|_| (random.u32() as u16).to_le_bytes()).collect();
        let values: Vec<f32> = (0..n).map(|_| random.normal()).collect();
        for at in At::all() {
            let what = format!("{n} {at:?}");
            let (from_halves, from_values) = (at.put(&halves), at.put(&values));
            let one = |f: fn(u16) -> f32| {
                halves
                    .iter()
                    .map(|h| f(u16::from_le_bytes(*h)))
                    .collect::<Vec<_>>()
            };
            let mut out = at.put(&values);
            f16_slice_to_f32(from_halves.slice(), out.slice_mut());
            assert_all_same(out.slice(), &one(f16_to_f32), &what);
            bf16_slice_to_f32(from_halves.slice(), out.slice_mut());
            assert_all_same(out.slice(), &one(bf16_to_f32), &what);
            let one = |f: fn(f32) -> u16| values.iter().map(|v| f(*v).to_le_bytes()).collect::<Vec<_>>();
            let mut out = at.put(&halves);
            f32_slice_to_f16(from_values.slice(), out.slice_mut());
            assert_eq!(out.slice(), one(f32_to_f16), "{what}");
            f32_slice_to_bf16(from_values.slice(), out.slice_mut());
            assert_eq!(out.slice(), one(f32_to_bf16), "{what}");
        }
    }
}

/// Searches take long, so each length has some of the shifts.
#[test]
fn encoders_and_decoders_stay_within_their_operands() {
    let mut random = Random::new(9);
    for format in registry::all() {
        let Some(portable) = format.encoder(super::portable()) else {
            continue;
        };
        for n_blocks in 1..=3 {
            let n = n_blocks * format.geometry.block_elems;
            let src: Vec<f32> = (0..n).map(|_| random.normal()).collect();
            let weights: Vec<f32> = (0..n).map(|_| random.normal().abs() + 0.1).collect();
            let n_bytes = format.geometry.row_bytes(n as u64).expect("whole blocks") as usize;
            let mut expected = vec![0; n_bytes];
            portable(&src, Importance::Column(&weights), &mut expected);
            let values = format.decode.map(|_| decode(format, &expected, n));
            for at in At::all().filter(|at| at.shift % 21 == 0) {
                for cpu in Cpu::available() {
                    let what = format!("{} {cpu:?} {n_blocks} blocks {at:?}", format.name);
                    let encode = format.encoder(cpu).expect("as at the portable level");
                    let (src, weights) = (at.put(&src), at.put(&weights));
                    let mut out = at.put(&vec![0; n_bytes]);
                    encode(src.slice(), Importance::Column(weights.slice()), out.slice_mut());
                    assert_eq!(out.slice(), expected, "{what}");
                    if let (Some(decode), Some(values)) = (format.decode, &values) {
                        let mut decoded = at.put(&vec![0.0; n]);
                        decode(out.slice(), decoded.slice_mut());
                        assert_all_same(decoded.slice(), values, &what);
                    }
                }
            }
        }
    }
}
