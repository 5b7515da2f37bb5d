//! Interleaved rows of `ik_llama.cpp` hold the values of the rows that they are made of. The packers here are written
//! in the other direction than the decoders: byte by byte of what is stored, from the codes of the plain rows.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "../common/mod.rs"]
mod common;
mod pack;

use common::Random;
use gguf_blocks::{Format, Origin, registry};

/// How the rows of a type are interleaved.
struct Repack {
    /// The type of the plain rows.
    base: &'static str,
    /// Elements of a row that one call of `pack` stores.
    elems: usize,
    /// Stores those of row `k`.
    pack: fn(k: usize, base: &[u8], out: &mut [u8]),
    /// Makes the header of an interleaved row from a plain row.
    header: fn(row: &[u8]) -> &[u8],
    /// Makes a plain row of random bytes one that the interleaved type can hold.
    prepare: fn(row: &mut [u8]),
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn decode(format: &Format, n_cols: usize, n_rows: usize, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; n_cols * n_rows];
    format.decode_rows(n_cols, bytes, &mut out).unwrap();
    out
}

/// One group of interleaved rows from plain ones.
fn interleave(repack: &Repack, format: &Format, base: &Format, rows: &[Vec<u8>], n_cols: usize) -> Vec<u8> {
    let g = format.geometry;
    let mut out: Vec<u8> = rows.iter().flat_map(|r| (repack.header)(r).to_vec()).collect();
    assert_eq!(out.len(), rows.len() * g.row_header_bytes, "{}", format.name);
    let per_group = g.block_bytes * (repack.elems / g.block_elems) * g.interleave;
    for i in 0..n_cols / repack.elems {
        let mut group = vec![0; per_group];
        let base_bytes = base.geometry.block_bytes * repack.elems / base.geometry.block_elems;
        for (k, row) in rows.iter().enumerate() {
            let block = &row[base.geometry.row_header_bytes + i * base_bytes..][..base_bytes];
            (repack.pack)(k, block, &mut group);
        }
        out.extend(group);
    }
    out
}

#[test]
fn interleaved_rows_hold_the_values_of_plain_rows() {
    let interleaved = |f: &&Format| f.geometry.interleave > 1 && f.decode.is_some();
    for format in registry::all().iter().copied().filter(interleaved) {
        assert_eq!(format.origin, Origin::Ik);
        let repack = pack::of(format.name).unwrap_or_else(|| panic!("{}: no packer", format.name));
        let base = registry::by_name(repack.base).unwrap();
        let n_cols = 768;
        let mut random = Random::new(format.id.0);
        for _ in 0..20 {
            let rows: Vec<Vec<u8>> = (0..format.geometry.interleave)
                .map(|_| {
                    let mut row = random.bytes(base.geometry.row_bytes(n_cols).unwrap() as usize);
                    (repack.prepare)(&mut row);
                    row
                })
                .collect();
            let n_cols = n_cols as usize;
            let bytes = interleave(&repack, format, base, &rows, n_cols);
            let found = decode(format, n_cols, rows.len(), &bytes);
            for (k, (row, found)) in rows.iter().zip(found.chunks(n_cols)).enumerate() {
                let expected = decode(base, n_cols, 1, row);
                for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
                    assert!(same(*a, *b), "{} row {k} column {i}: {a}, not {b}", format.name);
                }
            }
        }
    }
}
