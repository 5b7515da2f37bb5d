//! Models, texts and the program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub(crate) const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data");

/// The model that the golden matrix was made with; a clone without the shared folder has none.
pub(crate) fn model() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden/quantize/qwen3moe-bf16.gguf");
    if path.exists() {
        return Some(path);
    }
    eprintln!("notice: {} is absent: nothing compared", path.display());
    None
}

pub(crate) fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gguf-imatrix"))
        .args(args)
        .output()
        .unwrap()
}

/// Starts the program; what it prints waits for who reads it.
pub(crate) fn start(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_gguf-imatrix"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The options for the files of a run.
pub(crate) fn files<'a>(model: &'a Path, text: &'a str, out: &'a Path) -> [&'a str; 6] {
    let (model, out) = (model.to_str().unwrap(), out.to_str().unwrap());
    ["-m", model, "-f", text, "-o", out]
}

/// Runs on the calibration text; extra options are separated by blanks. Returns what went to stdout.
pub(crate) fn collect(model: &Path, out: &Path, options: &str) -> String {
    let text = format!("{DATA}/calibration.txt");
    let mut args = files(model, &text, out).to_vec();
    args.extend(options.split_whitespace());
    let done = run(&args);
    assert!(
        done.status.success(),
        "{options}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap()
}

pub(crate) fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut a.iter().zip(b).map(|(&x, &y)| f64::from(x) - f64::from(y)));
    difference / norm(&mut b.iter().map(|&x| f64::from(x)))
}
