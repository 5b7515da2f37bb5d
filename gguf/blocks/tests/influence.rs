//! Which values each stored bit changes. A wrong place or width of a code or scale in a decoder leaves bits that
//! change nothing, or values that depend on more bits than their neighbours.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeMap;

use common::Random;
use gguf_blocks::{Format, Unit, registry};

/// Random contents that are tried: in some of them a scale or a code hides what a bit does.
fn samples(n_bytes: usize) -> usize {
    match n_bytes {
        0..400 => 8,
        400..2000 => 4,
        _ => 2,
    }
}

/// Rows of one group of storage.
struct Case {
    format: &'static Format,
    n_rows: usize,
    n_cols: usize,
    n_bytes: usize,
}

impl Case {
    fn new(format: &'static Format) -> Self {
        let g = format.geometry;
        // Two blocks, to see that they are apart, unless a group has many values.
        let n_cols = g.block_elems * if g.interleave * g.block_elems > 256 { 1 } else { 2 };
        let n_bytes = g.tensor_bytes(n_cols as u64, g.interleave as u64).unwrap() as usize;
        Self {
            format,
            n_rows: g.interleave,
            n_cols,
            n_bytes,
        }
    }

    fn decode(&self, bytes: &[u8]) -> Vec<f32> {
        let mut out = vec![0.0; self.n_rows * self.n_cols];
        self.format.decode_rows(self.n_cols, bytes, &mut out).unwrap();
        out
    }

    /// The first and the last value that each bit changes, over all samples.
    fn spans(&self) -> Vec<Option<(usize, usize)>> {
        let mut spans = vec![None; 8 * self.n_bytes];
        let mut random = Random::new(self.format.id.0);
        let mut out = vec![0.0; self.n_rows * self.n_cols];
        for _ in 0..samples(self.n_bytes) {
            let mut bytes = random.bytes(self.n_bytes);
            let before = self.decode(&bytes);
            for (bit, span) in spans.iter_mut().enumerate() {
                bytes[bit / 8] ^= 1 << (bit % 8);
                self.format.decode_rows(self.n_cols, &bytes, &mut out).unwrap();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let differs = |i: &usize| before[*i].to_bits() != out[*i].to_bits();
                let Some(first) = (0..out.len()).find(differs) else {
                    continue;
                };
                let last = (first..out.len()).rev().find(differs).unwrap();
                let (a, b) = span.unwrap_or((first, last));
                *span = Some((first.min(a), last.max(b)));
            }
        }
        spans
    }
}

/// The smallest stretch of a power of two, at a multiple of its length, that holds columns `a` to `b`.
fn stretch(a: usize, b: usize) -> (usize, usize) {
    let mut n = 1;
    while a / n != b / n {
        n *= 2;
    }
    (a / n * n, n)
}

/// Bits that decoding does not need: sums of codes, the top bit of unsigned scales, padding.
fn unused_bits(format: &Format, n_blocks: usize) -> usize {
    match format.name {
        "Q8_1" => 16 * n_blocks,
        "Q8_K" => 256 * n_blocks,
        "Q8_KV" => 32,
        "NVFP4" => 4 * n_blocks,
        "I2_S" => 28 * 8,
        _ => 0,
    }
}

/// Types whose bits are shared by values that are not neighbours: five ternary values are one number.
fn mixes_values(format: &Format) -> bool {
    matches!(format.name, "TQ1_0" | "IQ1_BN")
}

fn quantized() -> impl Iterator<Item = &'static Format> {
    let all = registry::all().iter().copied();
    all.filter(|f| f.quantized && f.decode.is_some())
}

#[test]
fn every_bit_changes_values_of_one_row_and_all_values_depend_on_as_many() {
    for format in quantized() {
        let case = Case::new(format);
        let spans = case.spans();
        // Numbers of five ternary values have bits that change none of them most of the time.
        if !mixes_values(format) {
            let unused = spans.iter().filter(|s| s.is_none()).count();
            let n_blocks = case.n_cols / format.geometry.block_elems;
            assert_eq!(unused, unused_bits(format, n_blocks), "{}", format.name);
        }
        for (bit, (a, b)) in spans.iter().enumerate().filter_map(|(i, s)| Some((i, (*s)?))) {
            let one_row = a / case.n_cols == b / case.n_cols || format.geometry.unit() == Unit::Tensor;
            assert!(one_row, "{} bit {bit}: values {a} to {b}", format.name);
        }
        if !mixes_values(format) {
            case.values_depend_alike(&spans);
        }
    }
}

impl Case {
    /// How many bits each value depends on, by the length of the stretch that they change.
    fn values_depend_alike(&self, spans: &[Option<(usize, usize)>]) {
        let (case, format) = (self, self.format);
        let stretches: Vec<(usize, usize, usize)> = spans
            .iter()
            .flatten()
            .map(|&(a, b)| {
                let (first, n) = stretch(a % case.n_cols, b % case.n_cols);
                (a / case.n_cols, first, n)
            })
            .collect();
        // Points of a lattice and their signs change few neighbours; which of them differs from bit to bit.
        let lengths = stretches.iter().map(|s| s.2).filter(|n| *n <= 8);
        let unit = lengths.max().unwrap();
        let mut counts = vec![BTreeMap::<usize, usize>::new(); case.n_rows * case.n_cols];
        for (row, first, n) in stretches {
            let n = n.max(unit);
            let start = row * case.n_cols + first / n * n;
            for count in &mut counts[start..start + n] {
                *count.entry(n).or_default() += 1;
            }
        }
        for (i, count) in counts.iter().enumerate() {
            assert_eq!(
                *count,
                counts[0],
                "{} row {} column {}",
                format.name,
                i / case.n_cols,
                i % case.n_cols
            );
        }
    }
}
