//! Replays the fuzzer's corpora and findings.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use suite_tests::fuzz::{self, TARGETS, Target};
use suite_tests::{docs, workspace};

/// The inputs of a target, in order of their names.
fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = workspace().join("tests/fuzz/corpus").join(target);
    let entries = std::fs::read_dir(folder).expect("a target has a corpus");
    let mut inputs: Vec<PathBuf> = entries.map(|e| e.expect("an entry can be read").path()).collect();
    inputs.sort();
    inputs
}

/// Bytes of address space that the inputs of a target may take, beside the file of this test. The fuzzer allows 256 MiB at
/// once.
const MEMORY: u64 = 320 << 20;
/// For each input.
const TIME_LIMIT: Duration = Duration::from_mins(1);
/// Names the target in the process that runs its inputs.
const CHILD: &str = "SUITE_CORPUS_TARGET";

/// Runs the inputs of one target in this process, and names each before.
fn replay(target: &Target) {
    let inputs = corpus(target.name);
    assert!(inputs.len() > 2, "{}: only {} inputs", target.name, inputs.len());
    for input in inputs {
        println!("{}", input.display());
        (target.run)(&std::fs::read(&input).expect("an input can be read"));
    }
}

/// Runs the inputs of one target in a process of their own with a limit of memory, and ends it where an input takes too
/// long.
fn replay_within_limits(target: &Target, test: &str) {
    let own = std::env::current_exe().expect("a test knows its own path");
    let n_own = own.metadata().expect("a file").len();
    let mut child = Command::new("sh")
        .args([
            "-c",
            &format!("ulimit -v {}; exec \"$0\" \"$@\"", (MEMORY + n_own) / 1024),
        ])
        .arg(own)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, target.name)
        // Arenas are address space that nothing lies in.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a shell starts");
    let stdout = BufReader::new(child.stdout.take().expect("piped"));
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        stdout
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| send.send(line))
    });
    let mut last = format!("the first input of {}", target.name);
    loop {
        match lines.recv_timeout(TIME_LIMIT) {
            Ok(line) => {
                if line.contains("/corpus/") {
                    last = line;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill().expect("it runs");
                panic!("{last}: takes more than {TIME_LIMIT:?}");
            }
        }
    }
    let status = child.wait().expect("it has ended");
    assert!(
        status.success(),
        "{last}: {status}; is it the limit of memory, {MEMORY} bytes?"
    );
    let inputs = corpus(target.name);
    let all = inputs.last().expect("an input").display().to_string();
    assert!(
        last.ends_with(&all),
        "{last} was the last input that was run, not {all}"
    );
}

#[test]
fn inputs_that_were_of_interest_once_are_sound() {
    if let Ok(name) = std::env::var(CHILD) {
        return replay(fuzz::target_of(&name));
    }
    let mut n_bytes = 0;
    for target in TARGETS {
        replay_within_limits(target, "corpus::inputs_that_were_of_interest_once_are_sound");
        let lengths = corpus(target.name)
            .into_iter()
            .map(|path| path.metadata().expect("a file").len());
        n_bytes += lengths.sum::<u64>();
    }
    assert!(
        n_bytes < 4 << 20,
        "{n_bytes} bytes are more than belongs into a repository; 13 targets with some 300 KB each are enough"
    );
}

/// A row for each target: for how long it was fuzzed, with how many inputs, and how many of them were findings. `runs` is
/// the text of `hours.tsv`.
fn table(runs: &str) -> String {
    let runs: Vec<Vec<&str>> = runs
        .lines()
        .skip(1)
        .map(|line| line.split('\t').collect())
        .collect();
    let sum = |name: Option<&str>, column: usize| -> u64 {
        let of = runs.iter().filter(|run| name.is_none_or(|name| run[1] == name));
        of.map(|run| run[column].parse::<u64>().expect("a number")).sum()
    };
    let mut out = "| target | hours | inputs tried | findings |\n| --- | --: | --: | --: |\n".to_owned();
    for name in TARGETS.iter().map(|t| Some(t.name)).chain([None]) {
        let _ = writeln!(
            out,
            "| {} | {:.2} | {} | {} |",
            name.unwrap_or("all"),
            sum(name, 3) as f64 / 3600.0,
            sum(name, 4),
            sum(name, 6)
        );
    }
    out
}

#[test]
fn security_says_how_long_targets_were_fuzzed() {
    let runs = std::fs::read_to_string(workspace().join("tests/fuzz/hours.tsv")).expect("committed runs");
    docs::check("SECURITY.md", "fuzzed", &table(&runs));
}

#[test]
fn hours_of_a_target_are_added_up() {
    let runs = "head\nd\tmodel\t3700\t3600\t10\t0\t1\tc\nd\tmodel\t1900\t1800\t5\t0\t0\tc\nd\tstate\t37\t36\t1\t0\t2\tc\n";
    let table = table(runs);
    let ends = "| model | 1.50 | 15 | 1 |\n| state | 0.01 | 1 | 2 |\n| all | 1.51 | 16 | 3 |\n";
    assert!(table.ends_with(ends), "{table}");
}
