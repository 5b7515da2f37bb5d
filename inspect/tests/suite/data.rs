//! `gguf-inspect check --data`: what it finds in weights.

use std::path::Path;

use crate::models::{Model, inspect, place, save, values};
use gguf::Value;
use gguf_blocks::half_bulk::f32_to_f16;
use tempfile::TempDir;

/// The same weights in a file that claims to be no whole model, so that no architecture asks for others.
fn adapter(mut model: Model) -> Model {
    model.metadata.set("general.type", Value::from("adapter"));
    model
}

fn saved(model: &Model) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = adapter(model.clone()).save(folder.path(), "m.gguf");
    (folder, path)
}

/// The lines of a check of data about this tensor.
fn lines(path: &str, tensor: &str) -> Vec<String> {
    let out = inspect(&["check", "--data", path]).out;
    let about = format!("tensor `{tensor}`");
    out.lines()
        .filter(|l| l.contains(&about))
        .map(str::to_owned)
        .collect()
}

#[test]
fn sound_weights_pass_without_a_word() {
    let (_folder, path) = saved(&Model::usual());
    let run = inspect(&["check", "--data", &path, "--strict"]);
    assert_eq!(
        (run.code, run.err.as_str(), run.out.lines().count()),
        (0, "", 1),
        "{}",
        run.out
    );
}

#[test]
fn unsound_blocks_are_named_with_their_place() {
    let infinite = f32_to_f16(f32::INFINITY).to_le_bytes();
    let mut model = Model::usual();
    // Block 1 of row 5 of expert 2: 8 rows of one block each.
    let experts = &mut model.tensors[2].bytes;
    let at = (2 * 8 + 5) * 144;
    experts[at..at + 2].copy_from_slice(&infinite);
    // Block 3 of row 11: 8 blocks of 34 bytes a row.
    let embedding = &mut model.tensors[0].bytes;
    let block = (11 * 8 + 3) * 34;
    embedding[block..block + 2].copy_from_slice(&f32_to_f16(f32::NAN).to_le_bytes());
    let mut long = values(8, 300_000 * 2);
    long[300_000 + 200_000] = f32::NEG_INFINITY;
    let model = model.with("long.weight", &[300_000, 2], "BF16", &long);
    let (_folder, path) = saved(&model);
    let run = inspect(&["check", "--data", &path]);
    let byte =
        |tensor: &str, at: usize| format!("tensor `{tensor}` at byte {}", place(&path, tensor) + at as u64);
    run.assert(
        1,
        &[
            &format!(
                "{}: expert 2, row 5, block 0 (columns 0 to 255)",
                byte("blk.0.ffn_up_exps.weight", at)
            ),
            &format!(
                "{}: row 11, block 3 (columns 96 to 127)",
                byte("token_embd.weight", block)
            ),
            &format!(
                "{}: row 1, column 200000: the value is infinite",
                byte("long.weight", 1_000_000)
            ),
        ],
    );
    assert!(run.err.contains("3 findings"), "{}", run.err);
    assert_eq!(inspect(&["check", &path]).code, 0, "only `--data` reads them");
    for threads in ["1", "2", "5"] {
        assert_eq!(inspect(&["check", "--data", &path, "-t", threads]).out, run.out);
    }
    let json = inspect(&["check", "--data", "--json", &path]).json();
    let first = &json["findings"][0];
    assert_eq!(
        (&first["severity"], &first["at"]),
        (
            &"error".into(),
            &(place(&path, "token_embd.weight") + block as u64).into()
        )
    );
}

#[test]
fn many_unsound_values_are_counted() {
    let mut bad = values(2, 1000 * 300);
    bad.iter_mut().step_by(3).for_each(|v| *v = f32::NAN);
    let (_folder, path) = saved(&Model::new().with("w", &[1000, 300], "F16", &bad));
    let found = lines(&path, "w");
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(
        found[0].contains("row 0, column 0: the value is NaN"),
        "{found:?}"
    );
    assert!(
        found[2].contains("row 0, column 6: the value is NaN"),
        "{found:?}"
    );
    assert!(
        found[3].contains("100000 of 300000 values are unsound, 3 are listed"),
        "{found:?}"
    );
}

#[test]
fn tensors_experts_and_rows_without_content_are_warned_of() {
    let mut experts = values(3, 256 * 4 * 6);
    experts[1024..2048].fill(0.0);
    experts[4096..6144].fill(0.0);
    let mut rows = values(4, 64 * 20);
    rows[64 * 7..64 * 9].fill(0.0);
    rows[64 * 12..64 * 13].fill(0.25);
    let mut long = values(5, 300_000 * 2);
    long[300_000..].fill(0.0);
    let model = Model::new()
        .with("zero.weight", &[64, 4], "Q4_0", &[0.0; 256])
        .with("experts.weight", &[256, 4, 6], "Q4_K", &experts)
        .with("rows.weight", &[64, 20], "Q5_1", &rows)
        .with("long.weight", &[300_000, 2], "F32", &long)
        .with("token_embd.weight", &[64, 20], "F16", &rows)
        .with("a_norm.weight", &[64], "F32", &[1.0; 64])
        .with("attn_q.bias", &[64], "F32", &[0.0; 64]);
    let (_folder, path) = saved(&model);
    for (tensor, expected) in [
        ("zero.weight", &["all values are zero"][..]),
        ("experts.weight", &["3 of 6 experts have only zeros: 1, 4, 5"]),
        (
            "rows.weight",
            &[
                "2 of 20 rows have only zeros, the first is row 7",
                "1 of 20 rows have one value only, the first is row 12",
            ],
        ),
        (
            "long.weight",
            &["1 of 2 rows have only zeros, the first is row 1"],
        ),
        ("token_embd.weight", &[]),
        ("a_norm.weight", &[]),
        ("attn_q.bias", &[]),
    ] {
        let found = lines(&path, tensor);
        assert_eq!(found.len(), expected.len(), "{tensor}: {found:?}");
        for (line, words) in found.iter().zip(expected) {
            assert!(line.starts_with("warning: ") && line.contains(words), "{line}");
        }
    }
    assert_eq!(inspect(&["check", "--data", &path]).code, 0);
    assert_eq!(inspect(&["check", "--data", "--strict", &path]).code, 1);
}

#[test]
fn what_a_truncated_file_still_has_is_read() {
    let mut bad = values(1, 64);
    bad[3] = f32::NAN;
    let model = Model::new()
        .with("first", &[64], "F32", &bad)
        .random("second", &[64, 20], "F32", 2);
    let (_folder, path) = saved(&model);
    let bytes = std::fs::read(&path).expect("bytes");
    save(Path::new(&path), &bytes[..bytes.len() - 100]);
    inspect(&["check", "--data", &path]).assert(1, &["truncated", "row 0, column 3: the value is NaN"]);
}

#[test]
fn findings_in_shards_name_the_file() {
    let mut model = Model::usual();
    model.tensors[2].bytes[0..2].copy_from_slice(&[0, 0x7c]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = model.save_split(folder.path(), "s", 2);
    let run = inspect(&["check", "--data", &path]);
    run.assert(
        1,
        &["tensor `blk.0.ffn_up_exps.weight`", "expert 0, row 0, block 0"],
    );
}
