//! Matrix products of every tensor type at every level that the machine has, against the portable one.

use gguf_blocks::activation::{GroupScale, quantize};
use gguf_blocks::kernel::{Columns, IntKernel, Kernel};
use gguf_blocks::tile::{GROUP, MAX_COLUMNS, MAX_GROUPS, Minima, Panel, ROWS, Spread, Tile};
use gguf_blocks::{Cpu, Format, Level, registry};

use super::{cycled, floats};
use quantized::{Quantized, assert_same, by_tiles, same};

#[path = "../../../gguf/blocks/src/kernel/tests/quantized.rs"]
mod quantized;

/// The first byte picks the type, the second how long rows are and where they begin; the rest are the bytes of the rows
/// and, from its end, the activations.
pub(super) fn kernels(data: &[u8]) {
    let [kind, size, rest @ ..] = data else {
        return;
    };
    let with_kernels = || {
        registry::all()
            .iter()
            .filter(|f| (f.kernel)(portable()).is_some())
    };
    let format = with_kernels().nth(usize::from(*kind) % with_kernels().count());
    let format = format.expect("the number is below the count");
    let rows = |n_cols: usize| Rows::new(format, n_cols, usize::from(size >> 3), rest);
    let x: Vec<u8> = rest.iter().rev().copied().collect();
    match (format.kernel)(portable()).expect("types here have kernels") {
        Kernel::Int(_) => {
            let n_cols = (1 + usize::from(size & 7) % 4) * format.geometry.block_elems.max(GROUP);
            int(format, &rows(n_cols), &floats(&x, n_cols * MAX_COLUMNS));
        }
        Kernel::Float { .. } => {
            let n_cols = 1 + usize::from(*size) * 2;
            float(format, &rows(n_cols), &floats(&x, n_cols));
        }
    }
}

fn portable() -> Cpu {
    Cpu::at_most(Level::Portable)
}

/// Rows in allocations that end where they end, some bytes into them.
struct Rows {
    bytes: Vec<Vec<u8>>,
    shift: usize,
    n_cols: usize,
}

impl Rows {
    fn new(format: &Format, n_cols: usize, shift: usize, data: &[u8]) -> Self {
        let n_bytes = format.geometry.row_bytes(n_cols as u64).expect("whole blocks") as usize;
        let all = cycled(data, n_bytes * ROWS);
        let rows = all.chunks_exact(n_bytes);
        Self {
            bytes: rows.map(|row| [&vec![0; shift], row].concat()).collect(),
            shift,
            n_cols,
        }
    }

    fn rows(&self) -> [&[u8]; ROWS] {
        std::array::from_fn(|i| &self.bytes[i][self.shift..])
    }
}

fn int(format: &Format, rows: &Rows, x: &[f32]) {
    let n_groups = rows.n_cols / GROUP;
    let at = |cpu: Cpu| match (format.kernel)(cpu) {
        Some(Kernel::Int(kernel)) => kernel,
        other => panic!("{} {cpu:?}: {other:?}", format.name),
    };
    let base = at(portable());
    for cpu in Cpu::available() {
        let kernel = at(cpu);
        let what = format!("{} {cpu:?}", format.name);
        assert_eq!(kernel.kind, base.kind, "{what}");
        unpacked(&base, &kernel, rows.rows(), n_groups, &what);
        for n in [1, 2, MAX_COLUMNS] {
            let x = columns(cpu, n, rows.n_cols, x);
            let expected = by_tiles(&base, rows.rows(), &x);
            assert_same(&by_tiles(&kernel, rows.rows(), &x), &expected, &what);
            if n == 1 {
                let mut acc = [[0.5; ROWS]];
                let all = x.groups(0..n_groups);
                (kernel.dot)(rows.rows(), &[], all, &mut Tile::new(), &mut acc[0]);
                assert_same(&acc, &expected, &what);
            }
        }
    }
}

/// Tiles of two levels hold the same numbers where their kind has any.
fn unpacked(base: &IntKernel, kernel: &IntKernel, rows: [&[u8]; ROWS], n_groups: usize, what: &str) {
    let (mut a, mut b, kind) = (Tile::new(), Tile::new(), base.kind);
    for first in (0..n_groups).step_by(MAX_GROUPS) {
        let n = MAX_GROUPS.min(n_groups - first);
        for (kernel, tile) in [(base, &mut a), (kernel, &mut b)] {
            tile.set_groups(n);
            (kernel.unpack)(rows, first, tile);
        }
        let halves = if kind.halves { 2 } else { 1 };
        for g in 0..n {
            assert_eq!(a.v[g], b.v[g], "{what}");
            assert!(a.v[g].iter().all(|&v| v <= kind.max), "{what}: {:?}", a.v[g]);
            if kind.int_scales {
                assert_eq!(a.int_scale[g][..halves], b.int_scale[g][..halves], "{what}");
            } else {
                assert_same(&a.scale[g][..halves], &b.scale[g][..halves], what);
            }
            if kind.int_scales && kind.offset > 0 {
                assert_eq!(a.lower[g], b.lower[g], "{what}");
            }
            match kind.mins {
                Minima::None => {}
                Minima::Float => assert_same(&[a.min[g]], &[b.min[g]], what),
                Minima::Int => assert_eq!(a.int_min[g], b.int_min[g], "{what}"),
            }
        }
        if kind.int_scales {
            assert_same(&[a.unit], &[b.unit], what);
        }
        if kind.mins == Minima::Int {
            assert_same(&[a.min_unit], &[b.min_unit], what);
        }
    }
}

/// A level quantizes columns as the portable one does.
fn columns(cpu: Cpu, n: usize, len: usize, x: &[f32]) -> Quantized {
    let (found, expected) = (
        Quantized::new(cpu, n, len, x),
        Quantized::new(portable(), n, len, x),
    );
    assert_eq!(found.q, expected.q, "{cpu:?} {x:?}");
    for (a, b) in found.scales.iter().zip(&expected.scales) {
        assert!(
            same(a.d, b.d) && same(a.sum, b.sum) && a.int == b.int,
            "{cpu:?} {x:?}"
        );
    }
    found
}

fn float(format: &Format, rows: &Rows, x: &[f32]) {
    let decoded = rows.rows().map(|row| {
        let mut out = vec![0.0; rows.n_cols];
        format.decode.expect("types with kernels have values")(row, &mut out);
        out
    });
    let dot = |cpu: Cpu| {
        let mut acc = [0.5; ROWS];
        if let Some(Kernel::Float { dot, .. }) = (format.kernel)(cpu) {
            dot(rows.rows(), &[], x, &mut acc);
        }
        acc
    };
    let expected = dot(portable());
    for cpu in Cpu::available() {
        let what = format!("{} {cpu:?}", format.name);
        assert_same(&[dot(cpu)], &[expected], &what);
        let Some(Kernel::Float { unpack, round, .. }) = (format.kernel)(cpu) else {
            panic!("{what}: no float kernel");
        };
        let mut panel = Panel::new();
        for first in (0..rows.n_cols).step_by(GROUP * MAX_GROUPS) {
            panel.set_cols((rows.n_cols - first).min(GROUP * MAX_GROUPS));
            unpack(rows.rows(), first, &mut panel);
            for (row, decoded) in panel.v.iter().zip(&decoded) {
                let both = row[..panel.n_cols()].iter().zip(&decoded[first..]);
                assert!(both.into_iter().all(|(a, b)| same(*a, *b)), "{what}");
            }
        }
        if let Some(round) = round {
            round(x, &mut vec![0.0; x.len()]);
        }
    }
}
