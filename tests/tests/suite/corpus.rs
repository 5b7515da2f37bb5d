//! Replays the fuzzer's corpora and findings.

use std::path::PathBuf;

use suite_tests::fuzz::TARGETS;
use suite_tests::workspace;

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
