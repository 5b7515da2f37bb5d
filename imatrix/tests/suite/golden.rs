//! Against the reference's matrix, with other threads and batches, and on bad input.

use std::path::Path;
use std::process::{Command, Output};

use gguf_imatrix_format::Imatrix;

use crate::common::{DATA, collect, distance, files, model, run, start};

/// Largest relative L2 distance of a weight's sums. The reference adds up in f32.
const SUMS_DISTANCE: f64 = 5e-3;

/// Tokens that an expert's count may differ by, of some ten thousand: sums in another order let a near tie in routing
/// fall otherwise, and activations that lie between two BF16 numbers be rounded the other way.
const COUNT_SLACK: u64 = 4;

#[test]
fn the_matrix_agrees_with_the_references() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.gguf");
    let printed = collect(&model, &out, "-c 256 -b 2048 --quiet");
    let ours = Imatrix::read(&out).unwrap();
    let theirs = Imatrix::read(Path::new(&format!("{DATA}/golden/qwen3moe.imatrix.gguf"))).unwrap();
    assert_eq!(
        (ours.chunk_count, ours.chunk_size),
        (theirs.chunk_count, theirs.chunk_size)
    );
    assert_eq!(ours.datasets, theirs.datasets);
    assert!(ours.entries.keys().eq(theirs.entries.keys()));
    for (name, e) in &theirs.entries {
        let o = &ours.entries[name];
        assert_eq!(
            o.counts.iter().sum::<u64>(),
            e.counts.iter().sum::<u64>(),
            "{name}"
        );
        for (expert, (a, b)) in o.counts.iter().zip(&e.counts).enumerate() {
            assert!(
                a.abs_diff(*b) <= COUNT_SLACK,
                "{name}, expert {expert}: expected {b}, found {a}"
            );
        }
        for (a, b) in [(&o.sums, &e.sums), (&o.means, &e.means)] {
            let d = distance(a, b);
            assert!(d <= SUMS_DISTANCE, "{name}: relative distance {d}");
        }
    }
    // As the reference prints it: one running value a chunk, then the estimate.
    let (running, last) = printed.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(running.matches(',').count(), 213);
    assert!(
        running.starts_with("[1]") && running.contains(",[213]"),
        "{running}"
    );
    let ppl: f64 = last
        .strip_prefix("Final estimate: PPL = ")
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1.85..1.95).contains(&ppl), "{last}");
}

#[test]
fn neither_threads_nor_batches_change_a_byte() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut first: Option<Vec<u8>> = None;
    let settings = [
        "-b 128 -t 1",
        "-b 512 -t 2",
        "-b 512 -ub 50 -t 5 --no-ppl",
        "-b 30 -t 3",
        "-b 512 -t 2 --output-frequency 2 --save-frequency 3",
    ];
    for (i, options) in settings.into_iter().enumerate() {
        let out = dir.path().join(format!("{i}.gguf"));
        collect(&model, &out, &format!("-c 128 --chunks 7 --quiet {options}"));
        let bytes = std::fs::read(&out).unwrap();
        assert!(*first.get_or_insert_with(|| bytes.clone()) == bytes, "{options}");
    }
}

#[test]
fn the_output_and_the_legacy_form_on_request() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("new"), dir.path().join("old.gguf"));
    collect(&model, &new, "-c 64 --chunks 4 --process-output --quiet");
    collect(&model, &old, "-c 64 --chunks 4 --output-format dat --quiet");
    let (new, old) = (Imatrix::read(&new).unwrap(), Imatrix::read(&old).unwrap());
    assert_eq!(new.entries["output.weight"].counts, [256]);
    assert_eq!(
        (new.entries.len(), old.entries.len(), old.chunk_count),
        (25, 24, 4)
    );
    for name in old.entries.keys() {
        let d = distance(&old.importance(name).unwrap(), &new.importance(name).unwrap());
        assert!(d < 1e-6, "{name}: {d}");
    }
}

/// The program under a limit of file sizes, in bytes.
fn run_limited(limit: u64, args: &[&str]) -> Output {
    let quoted: Vec<String> = args.iter().map(|a| format!("'{a}'")).collect();
    let program = env!("CARGO_BIN_EXE_gguf-imatrix");
    let line = format!("ulimit -f {}; exec '{program}' {}", limit / 512, quoted.join(" "));
    Command::new("sh").args(["-c", &line]).output().unwrap()
}

#[test]
fn an_output_that_has_no_room_is_refused_before_the_work() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let options = "-c 64 --chunks 2 --process-output --quiet";
    for form in ["gguf", "dat"] {
        let options = format!("{options} --output-format {form}");
        collect(&model, &out, &format!("{options} --force"));
        let n_bytes = out.metadata().unwrap().len();
        let text = format!("{DATA}/calibration.txt");
        let (path, model) = (out.to_str().unwrap(), model.to_str().unwrap());
        let mut args = vec!["-m", model, "-f", &text, "-o", path, "--force"];
        args.extend(options.split_whitespace());
        let refused = run_limited(8192, &args);
        let talk = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{talk}");
        assert!(
            talk.contains(&format!("needs {n_bytes} bytes")),
            "{n_bytes}: {talk}"
        );
        assert!(refused.stdout.is_empty());
    }
}

#[test]
fn the_estimate_comes_even_if_the_matrix_cannot_be_written() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let (out, text) = (folder.join("out"), format!("{DATA}/calibration.txt"));
    let mut args = files(&model, &text, &out).to_vec();
    args.extend(["-c", "64", "-b", "64", "--chunks", "40", "--quiet"]);
    let mut child = start(&args);
    let mut first = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    assert_eq!(&first, b"[1]");
    // With the file that is to become the matrix.
    std::fs::remove_dir_all(&folder).unwrap();
    let done = child.wait_with_output().unwrap();
    let (data, talk) = (
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8(done.stderr).unwrap(),
    );
    assert_eq!(done.status.code(), Some(2), "{talk}");
    assert!(data.contains("\nFinal estimate: PPL = "), "{data}");
    assert!(talk.contains("error: ") && talk.contains("out"), "{talk}");
}

/// One line, the exit code, and nothing in the folder but what was there.
fn refuses(dir: &Path, args: &[&str], code: i32, part: &str) {
    let list = || {
        std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect::<Vec<_>>()
    };
    let before = list();
    let done = run(args);
    let text = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(code), "{args:?}: {text}");
    assert!(
        text.lines().count() == 1 && text.contains(part),
        "{args:?}: expected `{part}` in: {text}"
    );
    assert_eq!(list(), before, "{args:?}");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "inputs of the test, no outputs of the program"
)]
fn bad_input_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (out, short, bytes, cut) = (path("out"), path("short"), path("bytes"), path("cut"));
    std::fs::write(&short, "too short").unwrap();
    std::fs::write(&bytes, [b'a', 0xff, b'b']).unwrap();
    std::fs::write(&cut, b"GGUF\x03\0\0\0").unwrap();
    let text = format!("{DATA}/calibration.txt");
    let refuses = |args: &[&str], code, part| refuses(dir.path(), args, code, part);
    refuses(&["-m", &cut, "-f", &text, "-o", &out], 1, "cut");
    refuses(&["-m", &path("absent"), "-f", &text, "-o", &out], 2, "absent");
    let empty = path("empty");
    std::fs::create_dir(&empty).unwrap();
    refuses(
        &["-m", &empty, "-f", &text, "-o", &out],
        2,
        "expected a GGUF file, or a checkpoint with `config.json`, found neither",
    );
    refuses(&["-m", &cut, "-f", &path("no-text"), "-o", &out], 2, "no-text");
    refuses(
        &["-m", &cut, "-f", &bytes, "-o", &out],
        1,
        "at byte 1: expected UTF-8",
    );
    refuses(
        &["-m", &cut, "-f", &text, "-o", &cut, "--force"],
        2,
        "same file as the input",
    );
    refuses(&["-m", &cut, "-f", &text, "-o", &short], 2, "exists");
    refuses(
        &["-m", &cut, "-f", &text, "-o", &path("no/folder/out")],
        2,
        "no/folder",
    );
    refuses(
        &["-m", &cut, "-f", &text, "-o", &out, "-c", "8"],
        2,
        "at least 16 tokens",
    );
    refuses(
        &["-m", &cut, "-f", &text, "-o", &out, "--output-format", "json"],
        2,
        "json",
    );
    let Some(model) = model() else { return };
    refuses(
        &["-m", model.to_str().unwrap(), "-f", &short, "-o", &out],
        1,
        "too short",
    );
}
