//! Every decoder and encoder against the bits of the reference, one case after another.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::{Path, PathBuf};

use gguf_blocks::{Cpu, Format, Importance, Origin, registry};
use serde_json::Value;

/// The folder of reference vectors, or `None` (with a notice) where it is not there.
fn vectors() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/facts/vectors");
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("skipped: no folder of reference vectors at `{}`", dir.display());
    None
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("`{}`: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap().as_bytes();
    hex.as_chunks::<2>()
        .0
        .iter()
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn floats(hex: &Value) -> Vec<f32> {
    bytes(hex)
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|b| [b >> 4, b & 15])
        .filter_map(|d| char::from_digit(d.into(), 16))
        .collect()
}

fn encode(format: &Format, src: &[f32], importance: Importance<'_>) -> Vec<u8> {
    let n_bytes = format.geometry.row_bytes(src.len() as u64).unwrap() as usize;
    let mut out = vec![0xa5; n_bytes];
    format.encoder(Cpu::best()).unwrap()(src, importance, &mut out);
    out
}

#[test]
fn decoders_give_the_reference_values() {
    let Some(dir) = vectors() else { return };
    let mut checked = 0;
    for format in registry::all() {
        let path = dir.join(format!("dequant_{}.json", format.name.to_lowercase()));
        if !path.exists() {
            let activations = matches!(format.name, "Q8_1" | "Q8_K");
            assert!(
                !format.quantized || activations || format.origin == Origin::Ik,
                "{}: no vectors",
                format.name
            );
            continue;
        }
        let cases = read(&path);
        let blocks = cases["blocks_hex"].as_array().unwrap();
        let values = cases["f32_le_hex"].as_array().unwrap();
        for (n, (block, expected)) in blocks.iter().zip(values).enumerate() {
            let mut out = vec![f32::NAN; format.geometry.block_elems];
            (format.decode.unwrap())(&bytes(block), &mut out);
            // The file holds the values of a block as one string or one string each.
            let expected: Vec<f32> = match expected {
                Value::Array(each) => each.iter().flat_map(floats).collect(),
                all => floats(all),
            };
            for (i, (got, want)) in out.iter().zip(&expected).enumerate() {
                assert_eq!(
                    got.to_bits(),
                    want.to_bits(),
                    "{} block {n} value {i}",
                    format.name
                );
            }
            assert_eq!(out.len(), expected.len());
            checked += 1;
        }
    }
    assert!(checked > 0);
}

#[test]
fn encoders_give_the_reference_bytes() {
    let Some(dir) = vectors() else { return };
    let file = read(&dir.join("quant_vectors.json"));
    let default_importance = floats(&file["default_imatrix"]);
    let cases = file["cases"].as_array().unwrap();
    let mut checked = 0;
    let mut failures = Vec::new();
    for (name, outputs) in file["types"].as_object().unwrap() {
        let format = registry::by_name(name).unwrap();
        for (case, (plain, weighted)) in cases.iter().zip(
            outputs["no_imatrix"]
                .as_array()
                .unwrap()
                .iter()
                .zip(outputs["with_imatrix"].as_array().unwrap()),
        ) {
            let x = floats(&case["x"]);
            let own = (!case["imatrix"].is_null()).then(|| floats(&case["imatrix"]));
            let importance = own.as_deref().unwrap_or(&default_importance);
            for (kind, expected, importance) in [
                ("without", plain, Importance::None),
                ("with", weighted, Importance::Column(importance)),
            ] {
                if expected.is_null() {
                    continue;
                }
                let got = encode(format, &x, importance);
                checked += 1;
                if got != bytes(expected) {
                    failures.push(format!(
                        "{name} {} {kind} importance\n   {}\n   {}",
                        case["name"],
                        hex(&got),
                        expected.as_str().unwrap()
                    ));
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {checked} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(checked > 0);
}

#[test]
fn encoders_see_whole_rows() {
    let Some(dir) = vectors() else { return };
    let file = read(&dir.join("quant_vectors.json"));
    let rows = &file["multi_row"];
    let n_cols = rows["n_per_row"].as_u64().unwrap() as usize;
    let x = floats(&rows["x"]);
    let importance = floats(&rows["imatrix"]);
    for (name, expected) in rows["out"].as_object().unwrap() {
        let format = registry::by_name(name).unwrap();
        let got: Vec<u8> = x
            .chunks(n_cols)
            .flat_map(|row| encode(format, row, Importance::Column(&importance)))
            .collect();
        assert_eq!(hex(&got), expected.as_str().unwrap(), "{name}");
    }
}
