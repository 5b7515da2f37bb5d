//! The program from the outside: equality with the reference converter, both layouts of experts, and every
//! kind of bad input.

mod checkpoint;
mod golden;
mod hub;
mod layouts;
mod one_pass;
mod outputs;
mod refusals;
#[path = "../../../tests/src/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the program.
fn convert(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gguf-convert"))
        .args(args)
        .output()
        .expect("the program starts")
}

/// Runs the program with an output file and expects success.
fn convert_ok(dir: &Path, out: &Path, more: &[&str]) {
    let run = convert(&[&[text(dir), "-o", text(out), "-q"], more].concat());
    assert!(run.status.success(), "{}", stderr(&run));
}

fn stderr(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are UTF-8")
}

/// The checkpoint that the project carries.
fn carried() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/qwen3moe")).to_owned()
}

/// A file of the material beside the project; a notice and `None` where that is absent.
fn shared(path: &str) -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")).join(path);
    if path.exists() {
        return Some(path);
    }
    skip::skip(&format!("`{}` is absent", path.display()));
    None
}
