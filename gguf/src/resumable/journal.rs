//! How far a run is, on disk.
//!
//! Lines of text: `GGUF run journal 1`; `plan` and the digest of what the run does; `done` and how much of it is on
//! disk, or `complete`; `sha256`, the digest of all lines before.

use std::io::Read;
use std::path::Path;

use crate::atomic::{NO_FOLLOW, write_journal};
use crate::digest::{self, Digest};
use crate::{Error, Result};

const TITLE: &str = "GGUF run journal 1";
/// Most bytes of a journal.
const MAX_BYTES: u64 = 1024;

/// What is on disk of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// This many of the caller's units, from the first.
    Part(u64),
    /// All bytes of all outputs, some of which may have their final names.
    Complete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Journal {
    /// Digest of what the run does.
    pub(super) plan: Digest,
    pub(super) done: Done,
}

impl Journal {
    fn encode(&self) -> String {
        let done = match self.done {
            Done::Part(n) => format!("done {n}"),
            Done::Complete => "complete".to_owned(),
        };
        digest::seal(format!("{TITLE}\nplan {}\n{done}\n", self.plan))
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = digest::unseal(text)?.split('\n');
        if lines.next() != Some(TITLE) {
            return None;
        }
        let plan = Digest::parse(lines.next()?.strip_prefix("plan ")?)?;
        let done = match lines.next()? {
            "complete" => Done::Complete,
            line => Done::Part(line.strip_prefix("done ")?.parse().ok()?),
        };
        lines.next().is_none().then_some(Self { plan, done })
    }

    /// Puts the journal on disk in place of the one before.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        write_journal(path, self.encode().as_bytes())
    }

    /// Reads a journal; `None` if there is none.
    ///
    /// # Errors
    /// Anything but a whole journal whose digest fits.
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let open = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(NO_FOLLOW)
            .open(path);
        let read = match open {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => Err(e),
            Ok(file) => {
                let mut text = String::new();
                file.take(MAX_BYTES).read_to_string(&mut text).map(|_| text)
            }
        };
        let text = match read {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => String::new(),
            Err(source) => {
                return Err(Error::Io {
                    action: "read",
                    path: path.to_owned(),
                    source,
                });
            }
        };
        Self::decode(&text).map(Some).ok_or_else(|| {
            let what = format!(
                "`{}`: expected the whole journal of a run, found something else; remove it, or pass `--force` without \
                 `--resume`, to start over",
                path.display()
            );
            Error::Output(what.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_reads_as_it_was_written() {
        for done in [Done::Part(0), Done::Part(u64::MAX), Done::Complete] {
            let plan = Digest::of(b"plan");
            let journal = Journal { plan, done };
            assert_eq!(Journal::decode(&journal.encode()), Some(journal));
        }
        let other = digest::seal(format!("{TITLE}\nplan {}\ndone -1\n", Digest::of(b"")));
        assert_eq!(Journal::decode(&other), None);
    }
}
