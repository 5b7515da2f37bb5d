//! The programs as a user runs them, on a small random model.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::common::{Random, Tiny, write};

pub(crate) const PERPLEXITY: &str = env!("CARGO_BIN_EXE_gguf-perplexity");

/// A folder with a model and a text of some chunks of 32 tokens.
pub(crate) struct Work {
    pub(crate) folder: tempfile::TempDir,
}

impl Work {
    pub(crate) fn new(tiny: &Tiny) -> Self {
        let work = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        tiny.write(&work.path("tiny.gguf"));
        write(&work.path("text.txt"), text(400).as_bytes());
        work
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn run(&self, program: &str, args: &[&str]) -> Output {
        Command::new(program)
            .args(args)
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }

    /// Runs `gguf-perplexity` on the model and the text, in chunks of 32 tokens unless `more` says otherwise.
    pub(crate) fn perplexity(&self, more: &[&str]) -> Output {
        let mut args = vec!["-m", "tiny.gguf", "-f", "text.txt"];
        for usual in [["-c", "32"], ["-t", "2"]] {
            if !more.contains(&usual[0]) {
                args.extend(usual);
            }
        }
        args.extend(more);
        self.run(PERPLEXITY, &args)
    }

    pub(crate) fn json(&self, more: &[&str]) -> serde_json::Value {
        serde_json::from_str(&ok(&self.perplexity(&[more, &["--json"]].concat()))).unwrap()
    }
}

pub(crate) fn text(n_words: usize) -> String {
    let words = [
        "the", "inn", "in", "Fenquin", "was", "low,", "and", "1842", "äther", "—",
    ];
    let mut r = Random(11);
    let chosen = (0..n_words).map(|_| words[(r.next().abs() * 9.99) as usize]);
    chosen.collect::<Vec<_>>().join(" ")
}

pub(crate) fn ok(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line `error: ..` of a run that must fail with this code.
pub(crate) fn error(output: &Output, code: i32) -> String {
    let talk = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{talk}");
    let lines: Vec<&str> = talk.lines().filter(|l| l.starts_with("error: ")).collect();
    assert_eq!(lines.len(), 1, "{talk}");
    lines[0].to_owned()
}
