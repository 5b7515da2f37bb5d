//! Replays the fuzzer's corpora and findings.

use std::path::PathBuf;

use suite_tests::{fuzz, workspace};

/// The inputs of a target, in order of their names.
fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = workspace().join("tests/fuzz/corpus").join(target);
    let entries = std::fs::read_dir(folder).expect("a target has a corpus");
    let mut inputs: Vec<PathBuf> = entries.map(|e| e.expect("an entry can be read").path()).collect();
    inputs.sort();
    inputs
}

#[test]
fn container() {
    let inputs = corpus("container");
    assert!(inputs.len() > 20, "only {} inputs", inputs.len());
    for input in inputs {
        println!("{}", input.display());
        fuzz::container(&std::fs::read(&input).expect("an input can be read"));
    }
}
