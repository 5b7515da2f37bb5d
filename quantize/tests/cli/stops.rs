//! Runs that are stopped: killed at any moment, out of disk space, beside another run.

use std::time::{Duration, Instant};

use crate::fixture::{Fixture, large_model};

/// A slow type, so that there is time to stop a run.
const COMMAND: &str = "large.gguf out.gguf IQ3_S 1";

/// A model that takes a while to encode, the result, and how long that takes.
fn slow(f: &Fixture) -> (Vec<u8>, Duration) {
    f.put("large.gguf", &large_model());
    let start = Instant::now();
    assert!(f.run(&format!("{COMMAND} --quiet")).status.success());
    let time = start.elapsed();
    let whole = std::fs::read(f.path("out.gguf")).unwrap();
    std::fs::remove_file(f.path("out.gguf")).unwrap();
    (whole, time)
}

/// Everything that belongs to an output.
fn left_of(f: &Fixture, name: &str) -> Vec<String> {
    f.files().into_iter().filter(|n| n.contains(name)).collect()
}

#[test]
fn a_killed_run_leaves_nothing_under_the_final_name_and_is_resumed() {
    const LEFT: [&str; 4] = [
        "out.gguf",
        ".out.gguf.part",
        ".out.gguf.journal",
        ".out.gguf.journal.part",
    ];
    let f = Fixture::new();
    let (whole, time) = slow(&f);
    let source = std::fs::read(f.path("large.gguf")).unwrap();
    let (mut unfinished, mut resumed) = (0, 0);
    for i in 0..50_u32 {
        let mut child = f.spawn(&format!("{COMMAND} --quiet"));
        std::thread::sleep(time * (i * 37 % 50) / 48);
        child.kill().unwrap();
        child.wait().unwrap();
        let left = left_of(&f, "out.gguf");
        assert!(left.iter().all(|n| LEFT.contains(&n.as_str())), "{left:?}");
        unfinished += usize::from(left.iter().any(|n| n == ".out.gguf.part"));
        if let Ok(bytes) = std::fs::read(f.path("out.gguf")) {
            assert!(bytes == whole, "an output under its name is complete");
        }
        let again = f.run("--resume large.gguf out.gguf IQ3_S 2");
        let text = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(again.status.success(), "{text}");
        resumed += usize::from(text.contains("resuming: "));
        assert_eq!(left_of(&f, "out.gguf"), ["out.gguf"]);
        assert!(std::fs::read(f.path("out.gguf")).unwrap() == whole);
        std::fs::remove_file(f.path("out.gguf")).unwrap();
    }
    assert!(unfinished > 10, "only {unfinished} runs were stopped midway");
    assert!(resumed > 5, "only {resumed} runs went on where one was stopped");
    assert!(std::fs::read(f.path("large.gguf")).unwrap() == source);
}

#[test]
fn what_a_killed_run_left_is_named_and_not_lost_by_accident() {
    let f = Fixture::new();
    f.put(".out.gguf.part", b"some bytes");
    f.refuses(
        "in.gguf out.gguf Q5_K",
        2,
        &[".out.gguf.part", "`--resume`", "`--force`"],
    );
    let dry = f.run("--dry-run in.gguf out.gguf Q5_K --quiet");
    assert_eq!(dry.status.code(), Some(2));
    assert!(f.run("in.gguf out.gguf Q5_K --quiet --resume").status.success());
    assert_eq!(left_of(&f, "out.gguf"), ["out.gguf"]);
}

#[test]
fn two_runs_do_not_write_the_same_output() {
    let f = Fixture::new();
    f.put(".out.gguf.part", b"");
    let part = std::fs::File::open(f.path(".out.gguf.part")).unwrap();
    part.lock().unwrap();
    for options in ["", "--force", "--resume", "--dry-run"] {
        f.refuses(
            &format!("{options} in.gguf out.gguf Q5_K --quiet"),
            2,
            &["another run is writing it"],
        );
    }
    drop(part);
    assert!(f.run("in.gguf out.gguf Q5_K --quiet --force").status.success());
}

#[test]
fn a_source_that_changed_or_other_options_are_not_resumed() {
    let f = Fixture::new();
    let (_, time) = slow(&f);
    let mut killed = 0;
    for (i, change) in ["--pure", "--no-source-hash", "touch"].into_iter().enumerate() {
        // A run before that was through leaves its output.
        drop(std::fs::remove_file(f.path("out.gguf")));
        let mut child = f.spawn(&format!("{COMMAND} --quiet --force"));
        std::thread::sleep(time / 2);
        child.kill().unwrap();
        child.wait().unwrap();
        // A run that was through, or about to be, is no case.
        if !f.path(".out.gguf.journal").exists() || f.path("out.gguf").exists() {
            continue;
        }
        killed += 1;
        let options = if i == 2 {
            f.put("large.gguf", &large_model());
            ""
        } else {
            change
        };
        let again = f.run(&format!("--resume {options} {COMMAND}"));
        let text = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(
            again.status.code() == Some(2) && text.contains("with another source"),
            "{change}: {text}"
        );
    }
    assert!(killed > 0, "no run was stopped behind its first note");
}

#[test]
fn too_little_room_is_told_before_any_work() {
    let f = Fixture::new();
    // 128 blocks of 512 bytes, less than the output.
    let out = f.run_limited("-f 128", "in.gguf out.gguf Q8_0 --quiet");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(
        text.contains("this process may write files of 65536 at most"),
        "{text}"
    );
    assert_eq!(f.files(), ["in.gguf"]);
    f.refuses("in.gguf missing/out.gguf Q8_0", 2, &["`missing` does not exist"]);
}

#[test]
fn a_job_that_is_started_again_after_its_end_has_nothing_to_do() {
    let f = Fixture::new();
    let run = |kind: &str| f.run(&format!("--resume --part 2/2 in.gguf out.gguf {kind}"));
    assert!(run("Q4_0").status.success());
    let shard = f.path("out-00002-of-00002.gguf");
    let changed = |path| std::fs::metadata(path).unwrap().modified().unwrap();
    let before = changed(&shard);
    let again = run("Q4_0");
    assert!(again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("complete already"));
    assert_eq!(changed(&shard), before);
    // What a kill behind the last name left is looked at, not passed over.
    let journal = f.path(".out-00002-of-00002.gguf.journal");
    f.put(".out-00002-of-00002.gguf.journal", b"x");
    let text = String::from_utf8(run("Q4_0").stderr).unwrap();
    assert!(text.contains("expected the whole journal of a run"), "{text}");
    std::fs::remove_file(journal).unwrap();
    // Another type makes another file, and so may a source that was written since.
    let text = String::from_utf8(run("Q4_1").stderr).unwrap();
    assert!(text.contains("exists already"), "{text}");
    f.put("in.gguf", &std::fs::read(f.path("in.gguf")).unwrap());
    let text = String::from_utf8(run("Q4_0").stderr).unwrap();
    assert!(text.contains("exists already"), "{text}");
}
