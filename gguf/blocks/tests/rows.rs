//! Any number of rows: groups, headers and trailers are found where they are, and unsound blocks are named.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::Random;
use gguf_blocks::{Format, Place, Unit, registry};

/// Groups of rows.
const GROUPS: usize = 3;

/// Rows of two blocks each with small scales: every float of such bytes is finite.
struct Sample {
    n_cols: usize,
    n_rows: usize,
    bytes: Vec<u8>,
}

impl Sample {
    fn new(format: &Format) -> Self {
        let g = format.geometry;
        let (n_cols, n_rows) = (2 * g.block_elems, GROUPS * g.interleave);
        let n_bytes = g.tensor_bytes(n_cols as u64, n_rows as u64).unwrap() as usize;
        let mut bytes = Random::new(format.id.0).bytes(n_bytes);
        for byte in &mut bytes {
            *byte &= 0x3f;
        }
        Self {
            n_cols,
            n_rows,
            bytes,
        }
    }

    fn decode(&self, format: &Format) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.n_rows * self.n_cols];
        format.decode_rows(self.n_cols, &self.bytes, &mut out).unwrap();
        out
    }
}

fn decoders() -> impl Iterator<Item = &'static Format> {
    registry::all().iter().copied().filter(|f| f.decode.is_some())
}

#[test]
fn groups_are_decoded_one_by_one() {
    for format in decoders().filter(|f| f.geometry.unit() != Unit::Tensor) {
        let rows = Sample::new(format);
        let expected = rows.decode(format);
        let group = rows.n_rows / GROUPS;
        let n_bytes = rows.bytes.len() / GROUPS;
        for (i, bytes) in rows.bytes.chunks(n_bytes).enumerate() {
            let mut out = vec![f32::NAN; group * rows.n_cols];
            (format.decode.unwrap())(bytes, &mut out);
            assert_eq!(out, expected[i * out.len()..][..out.len()], "{}", format.name);
        }
    }
}

/// What the check finds shows in the values of the block that it names.
#[test]
fn the_place_of_unsound_blocks_is_where_values_change() {
    for format in decoders() {
        let mut rows = Sample::new(format);
        assert_eq!(
            format.check_rows(rows.n_cols, &rows.bytes),
            None,
            "{}",
            format.name
        );
        let before = rows.decode(format);
        let mut found = 0;
        for at in 0..rows.bytes.len() - 3 {
            // All exponent bits of whatever float ends here.
            let kept: [u8; 4] = rows.bytes[at..at + 4].try_into().unwrap();
            rows.bytes[at..at + 4].fill(0xff);
            if let Some(Place { row, col }) = format.check_rows(rows.n_cols, &rows.bytes) {
                found += 1;
                let after = rows.decode(format);
                let i = row * rows.n_cols + col;
                let block = i..i + format.geometry.block_elems;
                let changed = before[block.clone()]
                    .iter()
                    .zip(&after[block])
                    .any(|(a, b)| a.to_bits() != b.to_bits());
                // The sum of activations is no part of their values.
                assert!(
                    changed || format.name == "Q8_1",
                    "{} byte {at}: row {row}, column {col}",
                    format.name
                );
            }
            rows.bytes[at..at + 4].copy_from_slice(&kept);
        }
        let any_bits = matches!(format.name, "I8" | "I16" | "I32" | "I64" | "NVFP4");
        assert_eq!(found == 0, any_bits, "{}", format.name);
    }
}

#[test]
fn no_rows_are_fine() {
    for format in registry::all()
        .iter()
        .filter(|f| f.geometry.unit() != Unit::Tensor)
    {
        assert_eq!(format.check_rows(0, &[]), None);
        assert_eq!(format.check_rows(512, &[]), None);
        if format.decode.is_some() {
            assert_eq!(format.decode_rows(512, &[], &mut []), Some(()));
        }
    }
}

#[test]
fn plain_numbers_have_their_values() {
    fn value<const N: usize>(name: &str, bytes: [u8; N]) -> f32 {
        let mut out = [f32::NAN];
        registry::by_name(name)
            .unwrap()
            .decode_rows(1, &bytes, &mut out)
            .unwrap();
        out[0]
    }
    assert_eq!(value("I8", (-5i8).to_le_bytes()), -5.0);
    assert_eq!(value("I16", (-300i16).to_le_bytes()), -300.0);
    assert_eq!(value("I32", 70_000i32.to_le_bytes()), 70_000.0);
    assert_eq!(value("I64", (-(1i64 << 40)).to_le_bytes()), -(2.0f32.powi(40)));
    assert_eq!(value("F64", 0.1f64.to_le_bytes()), 0.1f32);
}
