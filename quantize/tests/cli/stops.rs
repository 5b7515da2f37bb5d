//! Runs that are stopped: killed at any moment, out of disk space, beside another run.

use std::time::{Duration, Instant};

use crate::fixture::{Fixture, large_model};

/// A model that takes a while to encode, and how long that takes.
fn slow(f: &Fixture) -> Duration {
    f.put("large.gguf", &large_model());
    let start = Instant::now();
    let out = f.run("large.gguf whole.gguf Q5_K 1 --quiet");
    assert!(out.status.success());
    start.elapsed()
}

/// Everything that belongs to an output.
fn left_of(f: &Fixture, name: &str) -> Vec<String> {
    f.files().into_iter().filter(|n| n.contains(name)).collect()
}

#[test]
fn a_killed_run_leaves_nothing_under_the_final_name_and_is_resumed() {
    let f = Fixture::new();
    let time = slow(&f);
    let source = std::fs::read(f.path("large.gguf")).unwrap();
    let whole = std::fs::read(f.path("whole.gguf")).unwrap();
    let mut unfinished = 0;
    for i in 0..50_u32 {
        let mut child = f.spawn("large.gguf out.gguf Q5_K 1 --quiet --force");
        std::thread::sleep(time * (i * 37 % 50) / 48);
        child.kill().unwrap();
        child.wait().unwrap();
        let left = left_of(&f, "out.gguf");
        unfinished += usize::from(left.iter().any(|n| n == ".out.gguf.part"));
        if let Ok(bytes) = std::fs::read(f.path("out.gguf")) {
            assert!(bytes == whole, "an output under its name is complete");
        }
        assert!(
            left.iter().all(|n| [
                "out.gguf",
                ".out.gguf.part",
                ".out.gguf.journal",
                ".out.gguf.journal.part"
            ]
            .contains(&n.as_str())),
            "{left:?}"
        );
        if i % 10 == 9 {
            let again = f.run("large.gguf out.gguf Q5_K 2 --quiet --resume --force");
            assert!(
                again.status.success(),
                "{}",
                String::from_utf8_lossy(&again.stderr)
            );
            assert_eq!(left_of(&f, "out.gguf"), ["out.gguf"]);
            assert!(std::fs::read(f.path("out.gguf")).unwrap() == whole);
            std::fs::remove_file(f.path("out.gguf")).unwrap();
        }
    }
    assert!(unfinished > 10, "only {unfinished} runs were stopped midway");
    assert!(std::fs::read(f.path("large.gguf")).unwrap() == source);
}

#[test]
fn what_a_killed_run_left_is_named_and_not_lost_by_accident() {
    let f = Fixture::new();
    let time = slow(&f);
    let mut child = f.spawn("large.gguf out.gguf Q5_K 1 --quiet");
    std::thread::sleep(time / 2);
    child.kill().unwrap();
    child.wait().unwrap();
    if f.path("out.gguf").exists() {
        eprintln!("notice: the run was faster than before: nothing is left to look at");
        return;
    }
    f.refuses(
        "large.gguf out.gguf Q5_K",
        2,
        &[".out.gguf.part", "`--resume`", "`--force`"],
    );
    let dry = f.run("--dry-run large.gguf out.gguf Q5_K --quiet");
    assert_eq!(dry.status.code(), Some(2));
    assert!(
        f.run("large.gguf out.gguf Q5_K --quiet --resume")
            .status
            .success()
    );
    assert_eq!(left_of(&f, "out.gguf"), ["out.gguf"]);
}

#[test]
fn two_runs_do_not_write_the_same_output() {
    let f = Fixture::new();
    let time = slow(&f);
    let mut first = f.spawn("large.gguf out.gguf Q5_K 1 --quiet");
    std::thread::sleep(time / 3);
    let second = f.run("large.gguf out.gguf Q5_K 1 --quiet --force");
    assert!(first.wait().unwrap().success());
    // Either the first was at work, or it was through and the second replaced its result.
    if !second.status.success() {
        assert!(String::from_utf8_lossy(&second.stderr).contains("another run is writing it"));
    }
    assert_eq!(left_of(&f, "out.gguf"), ["out.gguf"]);
    assert!(std::fs::read(f.path("out.gguf")).unwrap() == std::fs::read(f.path("whole.gguf")).unwrap());
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
    // Another type makes another file.
    let text = String::from_utf8(run("Q4_1").stderr).unwrap();
    assert!(text.contains("exists already"), "{text}");
}
