//! Helpers of the tests that cross crates: where data and programs lie, how a program is run.

pub mod docs;
pub mod fuzz;
mod skip;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The workspace's folder.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests lie in the workspace")
        .to_owned()
}

/// Tells that this test, or a part of it, cannot be done on this machine, and why.
///
/// # Panics
/// Where `GGUF_NO_SKIPS` forbids it.
pub fn skip(why: &str) {
    skip::skip(why);
}

/// A file of `tests/data`.
pub fn data(name: &str) -> PathBuf {
    workspace().join("tests/data").join(name)
}

/// A file of the folder `shared` beside the workspace, which a fresh clone elsewhere does not have. Prints a
/// notice and returns `None` where it is absent.
pub fn shared(name: &str) -> Option<PathBuf> {
    let path = workspace().parent()?.join("shared").join(name);
    if path.exists() {
        return Some(path);
    }
    skip(&format!("`shared/{name}` is not here"));
    None
}

/// A program of the suite, built by `cargo test --workspace` or `cargo build` in the profile of the tests.
pub fn program(name: &str) -> PathBuf {
    let mut folder = std::env::current_exe().expect("a test knows its own path");
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let path = folder.join(name);
    assert!(
        path.exists(),
        "`{}` is not built: run `cargo build --workspace` first",
        path.display()
    );
    path
}

/// Runs a program of the suite and returns what it printed, whatever its exit code.
pub fn run(name: &str, args: &[&str]) -> Output {
    Command::new(program(name))
        .args(args)
        .output()
        .expect("a built program starts")
}

/// Runs a program that must succeed and returns its stdout.
pub fn run_ok(name: &str, args: &[&str]) -> String {
    let out = run(name, args);
    assert!(
        out.status.success(),
        "{name} {args:?} ended with {}:\n{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("programs print UTF-8")
}

/// Runs a program that must succeed with `--json` and returns the object it prints.
pub fn run_json(name: &str, args: &[&str]) -> serde_json::Value {
    let mut all = args.to_vec();
    all.push("--json");
    serde_json::from_str(&run_ok(name, &all)).expect("`--json` prints one JSON value")
}

/// Every file below the workspace's folders of code with one of the endings, `target` left out.
pub fn sources(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = [
        "gguf", "quantize", "convert", "imatrix", "inspect", "runtime", "tests",
    ]
    .iter()
    .map(|d| workspace().join(d))
    .collect();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the workspace can be listed") {
            let path = entry.expect("an entry of the workspace can be read").path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    open.push(path);
                }
            } else if endings.iter().any(|e| path.extension().is_some_and(|x| x == *e)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
