//! Runs that are stopped, and go on.

use std::io::Read as _;
use std::path::Path;

use crate::common::{DATA, model, run, start};

/// Arguments of a run of 60 chunks with a checkpoint behind each; `more` stands in place of options of these.
fn args<'a>(model: &'a str, text: &'a str, out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let pairs = [
        ["-m", model],
        ["-f", text],
        ["-c", "64"],
        ["-b", "64"],
        ["--chunks", "60"],
    ];
    let mut args = vec!["-o", out, "--output-frequency", "1", "--quiet"];
    args.extend(pairs.iter().filter(|p| !more.contains(&p[0])).flatten());
    args.extend(more);
    args
}

/// The last line of what a run printed.
fn estimate(stdout: &[u8]) -> String {
    String::from_utf8_lossy(stdout).lines().last().unwrap().to_owned()
}

/// Starts a run and kills it when `mark` has been printed and there is a checkpoint.
fn kill_behind(args: &[&str], mark: &str, checkpoint: &Path) {
    let mut child = start(args);
    let mut printed = Vec::new();
    let mut byte = [0];
    let out = child.stdout.as_mut().unwrap();
    while !String::from_utf8_lossy(&printed).contains(mark) || !checkpoint.exists() {
        out.read_exact(&mut byte).unwrap();
        printed.push(byte[0]);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Starts a run, does something when it has begun to print, and returns its exit code and what it said.
fn disturb(args: &[&str], act: impl FnOnce()) -> (Option<i32>, String) {
    let mut child = start(args);
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    act();
    let done = child.wait_with_output().unwrap();
    (done.status.code(), String::from_utf8(done.stderr).unwrap())
}

#[test]
fn a_killed_run_ends_with_the_bytes_of_one_that_was_not() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (model, text) = (model.to_str().unwrap(), format!("{DATA}/calibration.txt"));
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (whole, out) = (path("whole"), path("out"));
    let checkpoint = dir.path().join("out.checkpoint");
    let done = run(&args(model, &text, &whole, &[]));
    assert!(done.status.success());
    let expected = estimate(&done.stdout);
    // Killed three times on its way, each time by another cut in batches.
    kill_behind(&args(model, &text, &out, &[]), "[3]", &checkpoint);
    assert!(!Path::new(&out).exists());
    kill_behind(
        &args(model, &text, &out, &["--resume", "-t", "1"]),
        "[6]",
        &checkpoint,
    );
    kill_behind(
        &args(model, &text, &out, &["--resume", "-ub", "17"]),
        "[9]",
        &checkpoint,
    );
    let refused = run(&args(model, &text, &out, &[]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("`--resume`"));
    let done = run(&args(model, &text, &out, &["--resume", "-b", "128"]));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(estimate(&done.stdout), expected);
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap());
    assert!(!checkpoint.exists());
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a file of somebody else, no output of the program"
)]
fn a_matrix_that_cannot_be_written_is_kept_in_the_checkpoint() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (model, text) = (model.to_str().unwrap(), format!("{DATA}/calibration.txt"));
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (whole, out) = (path("whole"), path("out"));
    let done = run(&args(model, &text, &whole, &[]));
    let expected = estimate(&done.stdout);

    let (code, talk) = disturb(&args(model, &text, &out, &[]), || {
        std::fs::write(&out, "another's").unwrap();
    });
    assert_eq!(code, Some(2), "{talk}");
    let what = "out.checkpoint`: `--resume`, with `--force` if a file is in the way";
    assert!(
        talk.starts_with("error: ") && talk.lines().count() == 1 && talk.contains(what),
        "{talk}"
    );
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "another's");

    // No chunk is evaluated again.
    let done = run(&args(model, &text, &out, &["--resume", "--force"]));
    let talk = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{talk}");
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), expected);
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap());
    assert!(!Path::new(&path("out.checkpoint")).exists());
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a file of somebody else, no output of the program"
)]
fn the_checkpoint_of_another_run_stays() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (model, text) = (model.to_str().unwrap(), format!("{DATA}/calibration.txt"));
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (code, talk) = disturb(&args(model, &text, &path("out"), &[]), || {
        std::fs::remove_file(path(".out.new")).unwrap();
        std::fs::write(path(".out.new"), "another run's").unwrap();
    });
    assert_eq!(code, Some(2), "{talk}");
    assert!(
        talk.contains("no checkpoint behind chunk 59: another run has begun `"),
        "{talk}"
    );
    assert!(!talk.contains("all that was collected"), "{talk}");
    assert_eq!(
        std::fs::read_to_string(path(".out.new")).unwrap(),
        "another run's"
    );
    assert!(!Path::new(&path("out")).exists());
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a file of somebody else, no output of the program"
)]
fn a_copy_that_cannot_be_written_leaves_the_matrix() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (model, text) = (model.to_str().unwrap(), format!("{DATA}/calibration.txt"));
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (whole, out) = (path("whole"), path("out"));
    assert!(run(&args(model, &text, &whole, &[])).status.success());
    let (code, talk) = disturb(&args(model, &text, &out, &["--save-frequency", "30"]), || {
        std::fs::write(path("out.at_60"), "another's").unwrap();
    });
    assert_eq!(code, Some(2), "{talk}");
    let lines: Vec<_> = talk.lines().map(|l| l.split_once(": ").unwrap()).collect();
    let [("warning", warning), ("error", error)] = lines[..] else {
        panic!("{talk}");
    };
    assert!(warning.starts_with("no copy at chunk 60: "), "{talk}");
    assert!(
        error.contains("out.at_60`: it exists already")
            && error.ends_with(&format!("the matrix itself is in `{out}`")),
        "{talk}"
    );
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap());
    assert!(Path::new(&path("out.at_30")).exists());
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "inputs of the test, no outputs of the program"
)]
fn checkpoints_of_other_runs_and_damaged_ones_are_refused() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (model, text) = (model.to_str().unwrap(), format!("{DATA}/calibration.txt"));
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let checkpoint = dir.path().join("out.checkpoint");
    kill_behind(&args(model, &text, out, &[]), "[3]", &checkpoint);
    let refuses = |more: &[&str], part: &str| {
        let done = run(&args(model, &text, out, &[&["--resume"], more].concat()));
        let talk = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{talk}");
        assert!(
            talk.contains(part) && talk.lines().count() == 1,
            "expected `{part}` in: {talk}"
        );
        assert!(!Path::new(out).exists());
    };
    refuses(&["--parse-special"], "special tokens: expected true, found false");
    refuses(&["--process-output"], "output matrix: expected true");
    refuses(&["--all-experts"], "share for all experts: expected 1, found 0");
    refuses(&["--from-chunk", "1"], "first chunk: expected 1, found 0");
    refuses(&["--chunks", "1"], "chunks");
    let other = dir.path().join("text");
    std::fs::write(&other, std::fs::read_to_string(&text).unwrap() + " more").unwrap();
    refuses(&["-f", other.to_str().unwrap()], "text: expected ");
    refuses(&["-c", "32"], "context: expected 32, found 64");

    let whole = std::fs::read(&checkpoint).unwrap();
    for n in (0..whole.len()).step_by(whole.len() / 23 + 1) {
        std::fs::write(&checkpoint, &whole[..n]).unwrap();
        refuses(&[], "");
    }
    // Bytes that were not written so.
    let mut bytes = whole.clone();
    let end = bytes.len() - 64;
    bytes[whole.len() / 2..end].fill(0xff);
    std::fs::write(&checkpoint, &bytes).unwrap();
    refuses(&[], "the file is damaged");
    std::fs::write(&checkpoint, &whole).unwrap();
    let done = run(&args(model, &text, out, &["--force"]));
    assert!(done.status.success() && !checkpoint.exists());
}
