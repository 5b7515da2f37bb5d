//! Replays the fuzzer's corpora and findings.

use std::fmt::Write as _;
use std::path::PathBuf;

use suite_tests::fuzz::TARGETS;
use suite_tests::{docs, workspace};

/// The inputs of a target, in order of their names.
fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = workspace().join("tests/fuzz/corpus").join(target);
    let entries = std::fs::read_dir(folder).expect("a target has a corpus");
    let mut inputs: Vec<PathBuf> = entries.map(|e| e.expect("an entry can be read").path()).collect();
    inputs.sort();
    inputs
}

#[test]
fn inputs_that_were_of_interest_once_are_sound() {
    let mut n_bytes = 0;
    for target in TARGETS {
        let inputs = corpus(target.name);
        assert!(inputs.len() > 2, "{}: only {} inputs", target.name, inputs.len());
        for input in inputs {
            // Shown where it does not come to an end.
            println!("{}", input.display());
            let bytes = std::fs::read(&input).expect("an input can be read");
            n_bytes += bytes.len();
            (target.run)(&bytes);
        }
    }
    assert!(
        n_bytes < 2 << 20,
        "{n_bytes} bytes are more than belongs into a repository"
    );
}

/// Each target has a program, and each program a target.
#[test]
fn every_target_has_its_program() {
    let folder = workspace().join("tests/fuzz/fuzz_targets");
    let entries = std::fs::read_dir(folder).expect("a folder of targets");
    let mut programs: Vec<String> = entries
        .map(|e| e.expect("an entry can be read").path())
        .map(|p| p.file_stem().expect("a name").to_string_lossy().into_owned())
        .filter(|name| name != "seeds")
        .collect();
    programs.sort();
    let mut names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
    names.sort_unstable();
    assert_eq!(programs, names);
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
