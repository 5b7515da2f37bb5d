//! Runs layer by layer.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{DATA, collect, model, run};

#[test]
fn layer_by_layer_gives_the_same_file() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let usual = "-c 64 --chunks 5 --process-output --quiet";
    let printed = collect(&model, &path("usual"), usual);
    let orders = [
        "--layer-major",
        "--layer-major -b 48 -ub 20 -t 1",
        // Too little for hidden states in memory.
        "--max-memory 28M -ub 16 -b 64",
    ];
    for (i, order) in orders.into_iter().enumerate() {
        let out = path(&i.to_string());
        assert_eq!(
            collect(&model, &out, &format!("{usual} {order}")),
            printed,
            "{order}"
        );
        assert!(
            std::fs::read(&out).unwrap() == std::fs::read(path("usual")).unwrap(),
            "{order}: other bytes"
        );
    }
    // Nothing stays behind.
    assert_eq!(dir.path().read_dir().unwrap().count(), 4);
    let done = run(&[
        "-m",
        model.to_str().unwrap(),
        "-f",
        &format!("{DATA}/calibration.txt"),
        "--max-memory",
        "1M",
    ]);
    let talk = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{talk}");
    assert!(talk.contains("memory for a model: expected at least"), "{talk}");
}

/// Starts a run and kills it as soon as there is a checkpoint; whether it came to its end before.
fn kill_at_checkpoint(args: &[&str], checkpoint: &Path) -> bool {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gguf-imatrix"))
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !checkpoint.exists() {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap().success()
}

#[test]
fn a_killed_run_goes_on_behind_its_last_layer() {
    let Some(model) = model() else { return };
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{DATA}/calibration.txt");
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (whole, out) = (path("whole"), path("out"));
    let checkpoint = dir.path().join("out.checkpoint");
    let args = |out: &str, more: &[&str]| -> Vec<String> {
        let pairs = [
            ["-m", model.to_str().unwrap()],
            ["-f", &text],
            ["-o", out],
            ["-c", "64"],
            ["--chunks", "120"],
            ["--output-frequency", "1"],
        ];
        let usual = pairs.iter().filter(|p| !more.contains(&p[0])).flatten();
        let all = usual.chain(&["--layer-major"]).chain(more);
        all.map(|&arg| arg.to_owned()).collect()
    };
    let start = |out: &str, more: &[&str]| {
        let args = args(out, more);
        run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let done = start(&whole, &[]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let first = args(&out, &[]);
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    assert!(
        !kill_at_checkpoint(&first, &checkpoint),
        "the run is too short to be killed"
    );
    assert!(!Path::new(&out).exists());
    let other = start(&out, &["--resume", "--chunks", "3"]);
    let talk = String::from_utf8(other.stderr).unwrap();
    assert!(talk.contains("chunks: expected 3, found 120"), "{talk}");
    let resumed = start(&out, &["--resume", "-ub", "33"]);
    let talk = String::from_utf8(resumed.stderr).unwrap();
    assert!(resumed.status.success(), "{talk}");
    let (_, place) = talk.split_once("going on behind layer ").expect(&talk);
    let mut words = place.split_whitespace();
    let number = |word: Option<&str>| -> usize {
        let digits = word.unwrap().trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse().expect(&talk)
    };
    let (layer, n_layers) = (number(words.next()), number(words.nth(1)));
    assert!((1..n_layers).contains(&layer), "{talk}");
    assert_eq!(resumed.stdout, done.stdout);
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap());
    assert!(!checkpoint.exists());
}
