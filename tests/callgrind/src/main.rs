//! The products of every type with kernels on fixed data, to be counted: `run` beside this crate runs it under
//! callgrind, which counts what happens inside of [`measured`] only and ends a count at each return from it. The lines
//! on standard output, a type and a path, say in order which counts these are.
//!
//! Paths: `dot` is a product with one column, `tile` one with [`N_COLUMNS`], both of integer types; `panel` is the
//! unpacking of float types, whose product is the same for all of them. What the threads and the blocks of
//! `gguf-runtime` add is left out.

use std::array;
use std::process::ExitCode;

use gguf_blocks::activation::{GROUP, GroupScale, quantize};
use gguf_blocks::kernel::{Columns, IntKernel, Kernel, MAX_COLUMNS, UnpackPanel};
use gguf_blocks::tile::{MAX_COLS, MAX_GROUPS, Panel, ROWS, Spread, Tile};
use gguf_blocks::{Cpu, Format, Level, registry};

const N_ROWS: usize = 32;
const N_COLS: usize = 2048;
const N_GROUPS: usize = N_COLS / GROUP;
/// Columns of activations of the path `tile`.
const N_COLUMNS: usize = 16;
/// Columns that are multiplied at once there.
const WIDTH: usize = MAX_COLUMNS;
/// The level that is counted: the highest one that valgrind 3.19 knows.
const LEVEL: Level = Level::Avx2;
/// Exit status where this machine lacks the level; `run` knows it.
const NO_LEVEL: u8 = 3;

/// What is counted.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
}

fn main() -> ExitCode {
    let cpu = Cpu::at_most(LEVEL);
    if cpu.level() != LEVEL {
        eprintln!(
            "this machine has no level `{}`, which is the one to count",
            LEVEL.name()
        );
        return ExitCode::from(NO_LEVEL);
    }
    for format in registry::all() {
        let weights = || Weights::new(format);
        match (format.kernel)(cpu) {
            Some(Kernel::Int(kernel)) => count_int(cpu, format, kernel, &weights()),
            Some(Kernel::Float { unpack, .. }) => count_float(format, unpack, &weights()),
            None => {}
        }
    }
    ExitCode::SUCCESS
}

/// Numbers from a fixed seed, 32 bits each.
fn random(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    }
}

/// [`N_ROWS`] stored rows of [`N_COLS`] values.
struct Weights {
    bytes: Vec<u8>,
    row_bytes: usize,
}

impl Weights {
    fn new(format: &Format) -> Self {
        let row_bytes = format
            .geometry
            .row_bytes(N_COLS as u64)
            .expect("whole blocks of every type") as usize;
        let mut random = random(1);
        // With the upper bits clear no scale is infinite or NaN.
        let bytes = (0..N_ROWS * row_bytes).map(|_| random() as u8 & 0x3f).collect();
        Self { bytes, row_bytes }
    }

    /// The rows of a panel.
    fn panel(&self, panel: usize) -> [&[u8]; ROWS] {
        array::from_fn(|row| &self.bytes[(panel * ROWS + row) * self.row_bytes..][..self.row_bytes])
    }

    /// What lies behind a panel.
    fn ahead(&self, panel: usize) -> &[u8] {
        let n = ROWS * self.row_bytes;
        self.bytes
            .get((panel + 1) * n..(panel + 2) * n)
            .unwrap_or_default()
    }
}

/// Quantized columns, side by side as kernels take them.
struct Activations {
    q: Vec<i8>,
    scales: Vec<GroupScale>,
    /// How many are side by side.
    width: usize,
}

impl Activations {
    /// Columns `first .. first + width` of those that the seed gives.
    fn new(cpu: Cpu, first: usize, width: usize) -> Self {
        let mut q = vec![0; N_COLS * width];
        let mut scales = vec![GroupScale::default(); N_GROUPS * width];
        for c in 0..width {
            let mut random = random((first + c) as u64 + 2);
            let x: Vec<f32> = (0..N_COLS).map(|_| random() as i32 as f32 * 1e-9).collect();
            let (mut one, mut one_scales) = (vec![0; N_COLS], vec![GroupScale::default(); N_GROUPS]);
            quantize(cpu, &x, &mut one, &mut one_scales);
            for (i, four) in one.as_chunks::<4>().0.iter().enumerate() {
                q[(i * width + c) * 4..][..4].copy_from_slice(four);
            }
            for (g, scale) in one_scales.into_iter().enumerate() {
                scales[g * width + c] = scale;
            }
        }
        Self { q, scales, width }
    }

    /// `n` groups from `first` on.
    fn groups(&self, first: usize, n: usize) -> Columns<'_> {
        let groups = first * self.width..(first + n) * self.width;
        Columns {
            q: &self.q[groups.start * GROUP..groups.end * GROUP],
            scales: &self.scales[groups],
        }
    }
}

/// Sums of all rows with all columns: `[columns that are multiplied at once][panel][column][row]`.
type Products = [[[[f32; ROWS]; WIDTH]; N_ROWS / ROWS]; N_COLUMNS / WIDTH];

fn count_int(cpu: Cpu, format: &Format, kernel: IntKernel, w: &Weights) {
    let mut tile = Tile::new();
    let one = Activations::new(cpu, 0, 1);
    let mut dots = [[0.0; ROWS]; N_ROWS / ROWS];
    println!("{}\tdot", format.name);
    measured(&mut || {
        for (panel, sums) in dots.iter_mut().enumerate() {
            let x = one.groups(0, N_GROUPS);
            (kernel.dot)(w.panel(panel), w.ahead(panel), x, &mut tile, sums);
        }
    });

    let many: [_; N_COLUMNS / WIDTH] = array::from_fn(|i| Activations::new(cpu, i * WIDTH, WIDTH));
    let mut tiles: Vec<Tile> = (0..N_ROWS / ROWS).map(|_| *Tile::new()).collect();
    let mut spread = Spread::new();
    let mut products: Products = Default::default();
    println!("{}\ttile", format.name);
    measured(&mut || {
        for first in (0..N_GROUPS).step_by(MAX_GROUPS) {
            for (panel, tile) in tiles.iter_mut().enumerate() {
                tile.set_groups(MAX_GROUPS);
                (kernel.unpack)(w.panel(panel), first, tile);
            }
            for (x, sums) in many.iter().zip(&mut products) {
                let sums = sums.as_flattened_mut();
                (kernel.multiply)(&tiles, x.groups(first, MAX_GROUPS), &mut spread, sums);
            }
        }
    });
    // Counts of something else would be worth nothing: both paths give the same bits, which are not zeros.
    for (dot, tile) in dots.iter().zip(&products[0]) {
        assert_eq!(*dot, tile[0], "{}: `dot` and `tile` differ", format.name);
        assert!(dot.iter().all(|&sum| sum != 0.0), "{}: {dot:?}", format.name);
    }
}

fn count_float(format: &Format, unpack: UnpackPanel, w: &Weights) {
    let mut panel = Panel::new();
    println!("{}\tpanel", format.name);
    measured(&mut || {
        for rows in (0..N_ROWS / ROWS).map(|p| w.panel(p)) {
            for first_col in (0..N_COLS).step_by(MAX_COLS) {
                panel.set_cols(MAX_COLS);
                unpack(rows, first_col, &mut panel);
            }
        }
    });
    assert!(
        panel.v.as_flattened().iter().any(|&v| v != 0.0),
        "{}",
        format.name
    );
}
