//! What the options change.

use std::path::{Path, PathBuf};

use gguf::GgufFile;
use gguf_imatrix_format::Imatrix;

use crate::common::{DATA, collect, files, model, run};

/// A matrix, and what was printed.
fn read(model: &Path, out: &Path, options: &str) -> (Imatrix, String) {
    let printed = collect(model, out, &format!("-c 64 --quiet {options}"));
    (Imatrix::read(out).unwrap(), printed)
}

#[test]
fn all_experts_see_the_share_and_nothing_else_changes() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (routed, values) = read(&model, &path("routed"), "--chunks 3");
    let (all, same_values) = read(&model, &path("all"), "--chunks 3 --all-experts");
    assert_eq!(values, same_values);
    let (quarter, _) = read(&model, &path("quarter"), "--chunks 3 --all-experts 0.25");
    let (cut, _) = read(
        &model,
        &path("cut"),
        "--chunks 3 --all-experts 0.25 -b 64 -ub 19 -t 1",
    );
    assert_eq!(quarter, cut);
    for (name, e) in &routed.entries {
        let n = e.counts.len();
        if n == 1 {
            assert_eq!(e, &all.entries[name]);
            continue;
        }
        assert_eq!(all.entries[name].counts, vec![192; n], "{name}");
        // A quarter of the positions, and those that are routed besides.
        let counts = &quarter.entries[name].counts;
        let at_least = |(q, r): (&u64, &u64)| *q >= 48.max(*r) && *q <= 48 + *r;
        assert!(counts.iter().zip(&e.counts).all(at_least), "{name}: {counts:?}");
        // What an expert sees by routing is a part of what it sees in all.
        let larger = |(a, r): (&f32, &f32)| *a >= *r;
        assert!(all.entries[name].sums.iter().zip(&e.sums).all(larger), "{name}");
    }
    // Gate and up of every expert saw the tokens that the router saw.
    let router = &all.entries["blk.0.ffn_gate_inp.weight"].sums;
    for expert in all.entries["blk.0.ffn_up_exps.weight"]
        .sums
        .chunks_exact(router.len())
    {
        assert_eq!(expert, router);
    }
}

#[test]
fn two_parts_of_a_text_are_the_whole() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (whole, _) = read(&model, &path("whole"), "--chunks 8 --no-ppl");
    let (first, _) = read(&model, &path("a"), "--chunks 5 --no-ppl");
    let (second, _) = read(&model, &path("b"), "--from-chunk 5 --chunks 3 --no-ppl");
    let mut merged = first;
    let notes = merged.merge(second).unwrap();
    assert!(
        notes.len() == 1 && notes[0].contains("chunks that both saw count twice"),
        "{notes:?}"
    );
    let on_top = format!(
        "--from-chunk 5 --chunks 3 --no-ppl --in-file {}",
        path("a").display()
    );
    let (on_top, _) = read(&model, &path("c"), &on_top);
    assert_eq!(on_top, merged);
    assert_eq!((merged.chunk_count, merged.datasets.len()), (8, 2));
    for (name, e) in &whole.entries {
        let m = &merged.entries[name];
        assert_eq!(m.counts, e.counts, "{name}");
        // Files hold F32: each part is rounded once, and their sum.
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= b * f32::EPSILON;
        assert!(m.sums.iter().zip(&e.sums).all(close), "{name}");
    }
}

#[test]
fn a_matrix_of_another_shape_is_refused_before_the_work() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (matrix, _) = read(&model, &path("a"), "--chunks 1 --no-ppl");
    let name = "blk.0.ffn_up_exps.weight";
    let n = matrix.entries[name].counts.len();
    let mut fewer_counts = matrix.clone();
    fewer_counts.entries.get_mut(name).unwrap().counts.truncate(n / 2);
    let mut fewer_columns = matrix;
    let entry = fewer_columns.entries.get_mut(name).unwrap();
    for sums in [&mut entry.sums, &mut entry.means] {
        sums.truncate(sums.len() / 2);
    }
    for (other, what) in [
        (fewer_counts, format!("expected {n} counts, found {}", n / 2)),
        (fewer_columns, "sums, found ".to_owned()),
    ] {
        other.write_gguf(&path("b"), true, &[]).unwrap();
        let (text, out) = (format!("{DATA}/calibration.txt"), path("c"));
        let mut args = files(&model, &text, &out).to_vec();
        let in_file = path("b").display().to_string();
        args.extend(["--in-file", &in_file, "-c", "64", "--chunks", "1", "--quiet"]);
        let refused = run(&args);
        let talk = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{talk}");
        assert!(
            talk.contains(&format!("weight `{name}` of `--in-file`: ")) && talk.contains(&what),
            "{talk}"
        );
        assert!(refused.stdout.is_empty() && !out.exists());
    }
}

#[test]
fn chunks_are_left_out_and_copies_kept() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (two, _) = read(&model, &path("two"), "--chunks 2");
    let (five, _) = read(&model, &path("five"), "--chunks 5 --save-frequency 2");
    assert_eq!(Imatrix::read(&path("five.at_2")).unwrap(), two);
    assert!(path("five.at_4").exists() && !path("five.at_5").exists());
    // The chunks behind make up the difference.
    let (rest, _) = read(&model, &path("rest"), "--chunks 3 --chunk 2");
    let name = "blk.1.ffn_down_exps.weight";
    let sum = |m: &Imatrix| m.entries[name].counts.iter().sum::<u64>();
    assert_eq!(sum(&rest) + sum(&two), sum(&five));
    for ((a, b), c) in rest.entries[name]
        .sums
        .iter()
        .zip(&two.entries[name].sums)
        .zip(&five.entries[name].sums)
    {
        assert!((a + b - c).abs() <= 1e-5 * c);
    }
    let text = format!("{DATA}/calibration.txt");
    let (model, out) = (model.to_str().unwrap(), path("far"));
    let done = run(&[
        "-m",
        model,
        "-f",
        &text,
        "-o",
        out.to_str().unwrap(),
        "--chunk",
        "100000",
    ]);
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stderr).contains("expected at least"));
}

#[test]
fn the_summary_and_the_least_tokens_of_an_expert() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let text = format!("{DATA}/calibration.txt");
    let (model, path) = (model.to_str().unwrap(), out.to_str().unwrap());
    let args = ["-m", model, "-f", &text, "-o", path, "-c", "64", "--chunks", "2"];
    let more = ["--json", "--quiet", "--min-expert-tokens", "1000"];
    let done = run(&[&args[..], &more].concat());
    assert_eq!(done.status.code(), Some(1));
    let talk = String::from_utf8(done.stderr).unwrap();
    assert!(
        talk.contains("expected at least 1000 tokens for each expert, found "),
        "{talk}"
    );
    let matrix = Imatrix::read(&out).unwrap();
    let least = matrix.entries.values().filter(|e| e.counts.len() > 1);
    let least = least.flat_map(|e| &e.counts).min().unwrap();
    assert!(talk.contains(&format!("found {least}")), "{talk}");
    let summary = String::from_utf8(done.stdout).unwrap();
    for part in [
        "\"chunks\": 2",
        "\"perplexity\"",
        "\"min_expert_tokens\": 1000",
        &format!("\"least_tokens\": {least}"),
    ] {
        assert!(summary.contains(part), "expected `{part}` in: {summary}");
    }
}

/// The model with one weight that is infinite.
#[expect(
    clippy::disallowed_methods,
    reason = "an input of the test, no output of the program"
)]
fn damaged(model: &Path, dir: &Path, tensor: &str, at: u64) -> PathBuf {
    let file = GgufFile::open(model).unwrap();
    let start = file.tensor_range(file.tensor(tensor).unwrap()).start + 2 * at;
    let mut bytes = std::fs::read(model).unwrap();
    // BF16 infinity.
    bytes[start as usize..][..2].copy_from_slice(&[0x80, 0x7f]);
    let path = dir.join("damaged.gguf");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_weight_that_is_no_number_is_found() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{DATA}/calibration.txt");
    let out = dir.path().join("out");
    let shape = |tensor: &str| {
        *GgufFile::open(&model)
            .unwrap()
            .tensor(tensor)
            .unwrap()
            .shape
            .dims()
            .first_chunk::<3>()
            .unwrap()
    };
    for (tensor, met) in [
        (
            "blk.1.ffn_up_exps.weight",
            "layer 1: input of tensor `blk.1.ffn_down_exps.weight`, expert 3, column 2",
        ),
        ("blk.1.ffn_down_exps.weight", "layer 2: input of tensor `blk.2."),
    ] {
        let [n_cols, n_rows, _] = shape(tensor);
        let bad = damaged(&model, dir.path(), tensor, (3 * n_rows + 2) * n_cols + 5);
        let more = "-c 16 -b 16 --chunks 8 --output-frequency 1 --quiet".split(' ');
        let args: Vec<&str> = files(&bad, &text, &out).into_iter().chain(more).collect();
        let done = run(&args);
        let talk = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{talk}");
        let origin = format!("tensor `{tensor}` (BF16), expert 3, row 2, column 5, is inf");
        assert!(talk.contains(met) && talk.contains(&origin), "{talk}");
        assert!(!out.exists());
        let chunk: usize = talk
            .split("chunk ")
            .nth(1)
            .unwrap()
            .split(',')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        // What was collected in front of the chunk is there still.
        let checkpoint = dir.path().join("out.checkpoint");
        assert_eq!(checkpoint.exists(), chunk > 1, "{talk}");
        if chunk > 1 {
            GgufFile::open(&checkpoint).unwrap().require_sound().unwrap();
            std::fs::remove_file(&checkpoint).unwrap();
        }
    }
}

#[test]
fn an_output_matrix_that_is_no_number_is_found() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{DATA}/calibration.txt");
    let out = dir.path().join("out");
    let bad = damaged(&model, dir.path(), "output.weight", 2 * 256 + 5);
    let (bad, path) = (bad.to_str().unwrap(), out.to_str().unwrap());
    let args = [
        "-m", bad, "-f", &text, "-o", path, "-c", "16", "--chunks", "2", "--quiet",
    ];
    let done = run(&args);
    let talk = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{talk}");
    let origin = "tensor `output.weight` (BF16), row 2, column 5, is inf";
    assert!(talk.contains("chunk 1") && talk.contains(origin), "{talk}");
    assert!(!out.exists());
    // Without logits nothing meets it.
    assert!(run(&[&args[..], &["--no-ppl"]].concat()).status.success());
}

#[test]
fn whoever_closes_stdout_leaves_the_matrix() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let text = format!("{DATA}/calibration.txt");
    let args = files(&model, &text, &out);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_gguf-imatrix"))
        .args(args)
        .args(["-c", "64", "-b", "64", "--chunks", "3", "--quiet"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(Imatrix::read(&out).unwrap().chunk_count, 3);
}

#[test]
fn an_input_is_never_taken_for_a_checkpoint() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let text = path("out.checkpoint");
    std::fs::copy(format!("{DATA}/calibration.txt"), &text).unwrap();
    let before = std::fs::read(&text).unwrap();
    let args = [
        "-m",
        model.to_str().unwrap(),
        "-f",
        &text,
        "-c",
        "64",
        "--chunks",
        "2",
        "--force",
    ];
    let done = run(&[&args[..], &["-o", &path("out")]].concat());
    let talk = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{talk}");
    assert!(talk.contains("out.checkpoint"), "{talk}");
    assert!(std::fs::read(&text).unwrap() == before);
}

#[test]
fn a_small_share_shows_some_tokens() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let matrix = |name: &str, more: &str| {
        let out = dir.path().join(name);
        collect(&model, &out, &format!("-c 64 --chunks 2 --quiet --no-ppl {more}"));
        Imatrix::read(&out).unwrap()
    };
    let tokens = |m: &Imatrix| {
        let counts = &m.entries["blk.0.ffn_up_exps.weight"].counts;
        counts.iter().sum::<u64>()
    };
    // One position of each chunk meets all 8 experts, 2 of which it was routed to.
    assert_eq!(
        tokens(&matrix("share", "--all-experts 0.001")),
        tokens(&matrix("routed", "")) + 2 * 6
    );
}
