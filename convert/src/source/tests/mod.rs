//! Made checkpoints of each form: values against formulas written here, exact repacks, and bad input.

#![expect(clippy::disallowed_methods, reason = "inputs of tests need no atomic writes")]

mod forms;
mod parts;
mod refusals;
mod repacks;

use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::{SourceTensor, Weights};
use crate::Result;

/// A checkpoint of one file.
#[derive(Clone, Default)]
struct Made {
    config: Json,
    tensors: Vec<(String, &'static str, Vec<u64>, Vec<u8>)>,
}

impl Made {
    fn new(quantization: impl Into<Json>) -> Self {
        Self {
            config: json!({ "quantization_config": quantization.into() }),
            tensors: Vec::new(),
        }
    }

    fn with(mut self, name: &str, dtype: &'static str, shape: &[u64], data: Vec<u8>) -> Self {
        self.tensors.push((name.to_owned(), dtype, shape.to_vec(), data));
        self
    }

    fn without(mut self, name: &str) -> Self {
        let before = self.tensors.len();
        self.tensors.retain(|t| t.0 != name);
        assert!(self.tensors.len() < before, "{name}");
        self
    }

    /// Replaces a tensor's format and shape, not its bytes.
    fn bent(mut self, name: &str, dtype: &'static str, shape: &[u64]) -> Self {
        let tensor = self.tensors.iter_mut().find(|t| t.0 == name).expect(name);
        (tensor.1, tensor.2) = (dtype, shape.to_vec());
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut header = serde_json::Map::new();
        let mut data = Vec::new();
        for (name, dtype, shape, bytes) in &self.tensors {
            let end = data.len() + bytes.len();
            let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [data.len(), end]});
            header.insert(name.clone(), entry);
            data.extend_from_slice(bytes);
        }
        let header = Json::Object(header).to_string();
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
    }

    fn open(&self) -> (TempDir, Result<Weights>) {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("model.safetensors"), self.bytes()).expect("written");
        let weights = Weights::open(dir.path(), &self.config);
        (dir, weights)
    }

    /// The message of a refusal, with all of `words`.
    fn refused(&self, words: &[&str]) {
        let message = self.open().1.expect_err("refused").to_string();
        for word in words {
            assert!(message.contains(word), "no `{word}` in: {message}");
        }
    }
}

/// The tensor of a name.
fn tensor<'a>(weights: &'a Weights, name: &str) -> &'a SourceTensor {
    let names: Vec<_> = weights.tensors.iter().map(|t| &t.name).collect();
    let found = weights.tensors.iter().find(|t| t.name == name);
    found.unwrap_or_else(|| panic!("no `{name}` in {names:?}"))
}

/// Reads matrix `i` whole, in parts of every alignment, and expects the same values each time.
fn read(weights: &Weights, name: &str, i: u64) -> Vec<f32> {
    let stored = tensor(weights, name).matrix(i);
    let (rows, cols) = (stored.n_rows, stored.n_cols);
    let mut whole = vec![0.0; (rows * cols) as usize];
    stored
        .read(&weights.files, 0..rows, 0..cols, &mut whole)
        .expect("readable");
    for (first, last, from, to) in [
        (0, 1, 0, 1),
        (rows / 2, rows, 1, cols),
        (rows / 3, rows / 3 + 1, cols / 2, cols / 2 + 1),
        (1, rows, 3, cols.max(1) - 1),
        (rows - 1, rows, 0, cols),
        (0, rows, cols / 3 + 1, cols / 2 + 2),
        (0, rows, 2, 2),
        (1, 1, 0, cols),
    ] {
        // Small tensors lack some of these parts.
        if first > last || from > to || last > rows || to > cols {
            continue;
        }
        let mut part = vec![0.0; ((last - first) * (to - from)) as usize];
        stored
            .read(&weights.files, first..last, from..to, &mut part)
            .expect("readable");
        let expected =
            (first..last).flat_map(|r| &whole[(r * cols + from) as usize..(r * cols + to) as usize]);
        assert!(
            part.iter().eq(expected),
            "rows {first} to {last}, columns {from} to {to}"
        );
    }
    whole
}

/// Opens a checkpoint and expects values of matrix `i`.
#[track_caller]
fn expect(made: &Made, name: &str, i: u64, expected: &[f32]) {
    let (_dir, weights) = made.open();
    let weights = weights.expect("opens");
    let found = read(&weights, name, i);
    assert_eq!(found.len(), expected.len(), "elements");
    for (at, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!(
            a.to_bits() == b.to_bits(),
            "element {at}: expected {b}, found {a}"
        );
    }
}

/// Bytes that look random.
fn bytes(seed: u32, n: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..n).map(|_| next()).collect()
}

/// Positive numbers that look random.
fn scales(seed: u32, n: usize) -> Vec<f32> {
    let of = |b: &u8| (f32::from(*b) + 1.0) / 777.0;
    bytes(seed, n).iter().map(of).collect()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// The upper halves, and what they stand for.
fn bf16s(values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let stored = values
        .iter()
        .flat_map(|v| v.to_le_bytes()[2..].to_vec())
        .collect();
    let values = values
        .iter()
        .map(|v| f32::from_bits(v.to_bits() & 0xffff_0000))
        .collect();
    (stored, values)
}

/// Halves of multiples of a power of two below 2048, which are exact.
fn f16s(values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let values: Vec<f32> = values.iter().map(|v| (v * 1024.0).round() / 1024.0).collect();
    let stored = values
        .iter()
        .flat_map(|v| gguf_blocks::half_bulk::f32_to_f16(*v).to_le_bytes());
    (stored.collect(), values)
}

fn i32s(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_le_bytes).collect()
}

/// The value of a float of 4 bits of exponent and 3 of mantissa.
fn e4m3(byte: u8) -> f32 {
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let (e, m) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    match (e, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => sign * m * 2.0f32.powi(-9),
        _ => sign * (1.0 + m / 8.0) * 2.0f32.powi(e - 7),
    }
}

/// The value of a float of 5 bits of exponent and 2 of mantissa.
fn e5m2(byte: u8) -> f32 {
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let (e, m) = (i32::from(byte >> 2 & 31), f32::from(byte & 3));
    match (e, byte & 3) {
        (31, 0) => sign * f32::INFINITY,
        (31, _) => f32::NAN,
        (0, _) => sign * m * 2.0f32.powi(-16),
        _ => sign * (1.0 + m / 4.0) * 2.0f32.powi(e - 15),
    }
}

/// The value of a float of 2 bits of exponent and 1 of mantissa.
fn e2m1(code: u8) -> f32 {
    let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
    if code > 8 { -magnitude } else { magnitude }
}

/// Elements of a packed row: `bits` each, lowest first.
fn unpacked(row: &[u8], bits: usize, n: usize) -> Vec<i32> {
    let bit = |i: usize| i32::from(row[i / 8] >> (i % 8) & 1);
    let code = |i: usize| (0..bits).map(|b| bit(i * bits + b) << b).sum();
    (0..n).map(code).collect()
}

/// Codes in 32-bit words, lowest bits first; the last word is filled with zeros.
fn words(codes: &[i32], bits: usize) -> Vec<i32> {
    let word = |codes: &[i32]| {
        let pairs = codes.iter().enumerate();
        pairs.fold(0, |word, (i, code)| word | (*code as u32) << (i * bits))
    };
    codes.chunks(32 / bits).map(|c| word(c).cast_signed()).collect()
}

/// A folder with files of these names.
fn folder(files: &[(&str, Vec<u8>)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).expect("written");
    }
    dir
}

/// The material beside the project; `None` with a notice where that is absent.
fn shared(path: &str) -> Option<std::path::PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")).join(path);
    if path.exists() {
        return Some(path);
    }
    crate::skip::skip(&format!("`{}` is absent", path.display()));
    None
}
