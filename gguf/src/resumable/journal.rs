//! How far a run is, on disk.
//!
//! Lines of text: `GGUF run journal 2`; `plan` and the digest of what the run does; `done` and how much of it is on
//! disk, or `complete`; `made` and ranges of the outputs that have a part file, by number; `sha256`, the digest of all
//! lines before.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use crate::atomic::{read_own, write_journal};
use crate::digest::{self, Digest};
use crate::{Error, Result};

const TITLE: &str = "GGUF run journal 2";
/// Most bytes of a journal: two numbers for every output that a set can have, and the rest.
const MAX_BYTES: u64 = 16 << 20;

/// What is on disk of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// This many of the caller's units, from the first.
    Part(u64),
    /// All bytes of all outputs, some of which may have their final names.
    Complete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Journal {
    /// Digest of what the run does.
    pub(super) plan: Digest,
    pub(super) done: Done,
    /// For each output whether its part file is there, with all its bytes that are done.
    pub(super) made: Vec<bool>,
}

impl Journal {
    fn encode(&self) -> String {
        let done = match self.done {
            Done::Part(n) => format!("done {n}"),
            Done::Complete => "complete".to_owned(),
        };
        let ranges = ranges(&self.made).map(|r| format!(" {}-{}", r.start, r.end));
        let made: String = ranges.collect();
        digest::seal(format!("{TITLE}\nplan {}\n{done}\nmade{made}\n", self.plan))
    }

    /// Takes a journal of a run with `n_outputs` outputs apart.
    fn decode(text: &str, n_outputs: usize) -> Option<Self> {
        let mut lines = digest::unseal(text)?.split('\n');
        if lines.next() != Some(TITLE) {
            return None;
        }
        let plan = Digest::parse(lines.next()?.strip_prefix("plan ")?)?;
        let done = match lines.next()? {
            "complete" => Done::Complete,
            line => Done::Part(line.strip_prefix("done ")?.parse().ok()?),
        };
        let mut made = vec![false; n_outputs];
        for range in lines.next()?.strip_prefix("made")?.split_terminator(' ').skip(1) {
            let (start, end) = range.split_once('-')?;
            // A journal of a run with more outputs is one of another plan, which the digest tells.
            let end = end.parse::<usize>().ok()?.min(n_outputs);
            made.get_mut(start.parse().ok()?..end)
                .unwrap_or_default()
                .fill(true);
        }
        lines.next().is_none().then_some(Self { plan, done, made })
    }

    /// Puts the journal on disk in place of the one before.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        write_journal(path, self.encode().as_bytes())
    }

    /// Reads the journal of a run with `n_outputs` outputs; `None` if there is none.
    ///
    /// # Errors
    /// Anything but a whole journal whose digest fits.
    pub(super) fn read(path: &Path, n_outputs: usize) -> Result<Option<Self>> {
        let read = match read_own(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => Err(e),
            Ok(file) => {
                let mut bytes = Vec::new();
                file.take(MAX_BYTES).read_to_end(&mut bytes).map(|_| bytes)
            }
        };
        let bytes = read.map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        let journal = String::from_utf8(bytes)
            .ok()
            .and_then(|text| Self::decode(&text, n_outputs));
        journal.map(Some).ok_or_else(|| {
            let what = format!(
                "`{}`: expected the whole journal of a run, found something else: pass `--force` without `--resume` to \
                 start over",
                path.display()
            );
            Error::Output(what.into())
        })
    }
}

/// The stretches of true values.
fn ranges(made: &[bool]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + made[at..].iter().position(|m| *m)?;
        let len = made[start..].iter().position(|m| !*m);
        at = len.map_or(made.len(), |n| start + n);
        Some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_reads_as_it_was_written() {
        let (t, f) = (true, false);
        for made in [vec![t], vec![f, f], vec![t, t, f, t, f, f, t], vec![]] {
            for done in [Done::Part(0), Done::Part(u64::MAX), Done::Complete] {
                let plan = Digest::of(b"plan");
                let made = made.clone();
                let journal = Journal { plan, done, made };
                let n = journal.made.len();
                assert_eq!(Journal::decode(&journal.encode(), n), Some(journal));
            }
        }
        let sealed = |line: &str| digest::seal(format!("{TITLE}\nplan {}\n{line}\nmade\n", Digest::of(b"")));
        assert!(Journal::decode(&sealed("done 1"), 2).is_some());
        assert_eq!(Journal::decode(&sealed("done -1"), 2), None);
        assert_eq!(Journal::decode(&sealed("done 1\nmade"), 2), None);
    }

    #[test]
    fn a_journal_of_another_run_is_read_within_bounds() {
        let (plan, done) = (Digest::of(b"plan"), Done::Part(1));
        let made = vec![true; 9];
        let text = Journal { plan, done, made }.encode();
        let found = Journal::decode(&text, 2).expect("a sound journal");
        assert_eq!(found.made, [true; 2]);
    }
}
