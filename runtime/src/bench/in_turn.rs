//! `--in-turn`: each repetition waits for a line, so that whoever writes it can measure something else in between.

use std::io::BufRead;

use gguf_cli::{Failure, Result, say};

use super::plan::Test;

/// Bytes of a line at most.
const MAX_LINE: u64 = 64;

/// What a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Repetition,
    /// The test ends with the repetitions that it has.
    Next,
}

/// Waits for the line that asks for a repetition of `test` behind `done` ones.
pub(super) fn wait(test: &Test, done: usize) -> Result<Turn> {
    read(std::io::stdin().lock(), done).map_err(|e| {
        Failure::Usage(format!(
            "standard input, before repetition {} of `{}`: {e}",
            done + 1,
            test.name()
        ))
    })
}

/// Says how fast the `done`th repetition was, of so many seconds.
pub(super) fn tell(test: &Test, done: usize, seconds: f64) {
    let rate = test.n_tokens() as f64 / seconds;
    say(&format!(
        "repetition {done} of {}: {rate:.2} tokens/s",
        test.name()
    ));
}

fn read(input: impl BufRead, done: usize) -> std::result::Result<Turn, String> {
    let mut line = String::new();
    let read = input.take(MAX_LINE).read_line(&mut line);
    match (read.map_err(|e| e.to_string())?, line.trim_end()) {
        (0, _) => Err("it has ended, expected a line".into()),
        (_, "") => Ok(Turn::Repetition),
        (_, "next") if done > 0 => Ok(Turn::Next),
        (_, "next") => Err("found `next`, expected a repetition first".into()),
        (_, other) => Err(format!("found `{other}`, expected an empty line or `next`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_repetitions_or_ends() {
        let turn = |text: &str, done| read(text.as_bytes(), done);
        assert_eq!(turn("\nnext\n", 0), Ok(Turn::Repetition));
        assert_eq!(turn("next\n", 1), Ok(Turn::Next));
        for (text, part) in [
            ("", "has ended"),
            ("next\n", "a repetition first"),
            ("go\n", "found `go`"),
            (&"x".repeat(1000), "xxx`, expected"),
        ] {
            let e = turn(text, 0).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
