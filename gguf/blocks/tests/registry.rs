//! What holds for every registered type.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeSet;
use std::path::Path;

use gguf_blocks::{Format, Origin, TypeId, registry};

/// The folders under `src/types`.
fn folders() -> BTreeSet<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/types");
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

/// The folder a type's record stands in: its name, except for types without a layout of their own.
fn folder(format: &Format) -> String {
    match format.name {
        "I8" | "I16" | "I32" | "I64" | "F64" | "BF16_R16" => "plain".to_owned(),
        name => name.to_lowercase(),
    }
}

#[test]
fn every_folder_is_registered_and_every_record_has_its_folder() {
    let registered: BTreeSet<_> = registry::all().iter().map(|f| folder(f)).collect();
    assert_eq!(folders(), registered);
}

#[test]
fn ids_ascend_and_names_differ() {
    let formats = registry::all();
    assert!(formats.is_sorted_by(|a, b| a.id < b.id));
    let names: BTreeSet<_> = formats.iter().map(|f| f.name.to_lowercase()).collect();
    assert_eq!(names.len(), formats.len());
}

#[test]
fn look_ups_find_each_type_and_nothing_else() {
    for format in registry::all() {
        assert_eq!(format.name, format.name.to_uppercase());
        for name in [format.name.to_owned(), format.name.to_lowercase()] {
            assert!(std::ptr::eq(registry::by_name(&name).unwrap(), *format));
        }
        assert!(std::ptr::eq(registry::by_id(format.id).unwrap(), *format));
    }
    assert!(registry::by_name("Q4").is_none());
    // Numbers of types that were taken out of the format.
    for id in [4, 5, 31, 33, 37, 38, u32::MAX] {
        assert!(registry::by_id(TypeId(id)).is_none());
    }
}

#[test]
fn records_are_consistent() {
    for format in registry::all() {
        let g = format.geometry;
        assert!(
            g.block_elems > 0 && g.block_bytes > 0 && g.interleave > 0,
            "{}",
            format.name
        );
        let few_bits = folder(format) != "plain" && g.bits_per_weight() < 16.0;
        assert_eq!(format.quantized, few_bits, "{}", format.name);
        assert!(format.origin == Origin::Ik || g.is_plain(), "{}", format.name);
        assert!(
            format.encode.is_none() || format.decode.is_some(),
            "{}",
            format.name
        );
        assert_eq!(format.encode.is_some(), format.encode_cost > 0, "{}", format.name);
        assert!(
            !format.requires_importance || format.encode.is_some(),
            "{}",
            format.name
        );
        assert!(
            !format.doc.is_empty() && !format.doc.ends_with('.'),
            "{}",
            format.name
        );
    }
}

#[test]
fn rows_are_whole_blocks() {
    for format in registry::all() {
        let g = format.geometry;
        let elems = g.block_elems as u64;
        assert_eq!(g.row_bytes(0), Some(g.row_header_bytes as u64));
        assert_eq!(
            g.row_bytes(7 * elems),
            Some((7 * g.block_bytes + g.row_header_bytes) as u64)
        );
        if elems > 1 {
            assert_eq!(g.row_bytes(7 * elems + 1), None);
        }
        let most = u64::MAX / elems * elems;
        let bytes = u128::from(most / elems) * g.block_bytes as u128 + g.row_header_bytes as u128;
        assert_eq!(
            g.row_bytes(most).map(u128::from),
            (bytes < 1 << 64).then_some(bytes)
        );
    }
}

#[test]
fn tensors_are_whole_groups_and_a_trailer() {
    for format in registry::all() {
        let g = format.geometry;
        let (n_cols, n_rows) = (3 * g.block_elems as u64, 5 * g.interleave as u64);
        let rows = n_rows * g.row_bytes(n_cols).unwrap();
        let trailer = g.tensor_trailer_bytes as u64;
        assert_eq!(
            g.tensor_bytes(n_cols, n_rows),
            Some(rows + trailer),
            "{}",
            format.name
        );
        if g.interleave > 1 {
            assert_eq!(g.tensor_bytes(n_cols, n_rows + 1), None, "{}", format.name);
        }
        assert_eq!(
            g.tensor_bytes(n_cols, u64::MAX / 2 / 16 * 16),
            None,
            "{}",
            format.name
        );
    }
}
