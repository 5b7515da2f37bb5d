//! How far a merge that consumes its shards has come, on disk.
//!
//! Lines of text: `GGUF merge journal 1`; `head`, its bytes and SHA-256; for each shard `shard`, the tensors up to its
//! end and where its data ends in the merged file; `done` and the number of shards that are in the merged file;
//! `name`, the shards' name up to the numbers; `sha256`, the digest of all lines before.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use super::MAX_SHARDS;
use crate::atomic::{read_own, write_journal};
use crate::digest::{self, Digest};
use crate::{Error, Result};

const TITLE: &str = "GGUF merge journal 1";
/// Most bytes of a journal: a line for each shard.
const MAX_BYTES: u64 = 64 * MAX_SHARDS as u64 + 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Journal {
    /// The shards' name up to the numbers, without a folder.
    pub(super) prefix: String,
    /// Bytes of the merged file's head.
    pub(super) head_bytes: u64,
    /// Its SHA-256.
    pub(super) head_sha256: Digest,
    /// Number of tensors up to the end of each shard.
    pub(super) tensors: Vec<u64>,
    /// Where each shard's data ends in the merged file.
    pub(super) ends: Vec<u64>,
    /// Shards, from the first, whose data is in the merged file.
    pub(super) done: u32,
}

impl Journal {
    fn encode(&self) -> String {
        let mut text = format!("{TITLE}\nhead {} {}\n", self.head_bytes, self.head_sha256);
        for (n, end) in self.tensors.iter().zip(&self.ends) {
            let _ = writeln!(text, "shard {n} {end}");
        }
        let _ = writeln!(text, "done {}\nname {}", self.done, self.prefix);
        digest::seal(text)
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = digest::unseal(text)?.split('\n');
        if lines.next() != Some(TITLE) {
            return None;
        }
        let (bytes, digest) = lines.next()?.strip_prefix("head ")?.split_once(' ')?;
        let mut journal = Self {
            prefix: String::new(),
            head_bytes: bytes.parse().ok()?,
            head_sha256: Digest::parse(digest)?,
            tensors: Vec::new(),
            ends: Vec::new(),
            done: 0,
        };
        let mut line = lines.next()?;
        while let Some(shard) = line.strip_prefix("shard ") {
            let (n, end) = shard.split_once(' ')?;
            journal.tensors.push(n.parse().ok()?);
            journal.ends.push(end.parse().ok()?);
            line = lines.next()?;
        }
        journal.done = line.strip_prefix("done ")?.parse().ok()?;
        lines
            .next()?
            .strip_prefix("name ")?
            .clone_into(&mut journal.prefix);
        (lines.next().is_none() && journal.is_sound()).then_some(journal)
    }

    fn is_sound(&self) -> bool {
        let count = self.ends.len();
        (2..=MAX_SHARDS as usize).contains(&count)
            && self.done as usize <= count
            && self.tensors.is_sorted()
            && self.ends.is_sorted()
            && self.ends[0] >= self.head_bytes
            && !self.prefix.contains('/')
    }

    /// Puts the journal on disk in place of the one before.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        write_journal(path, self.encode().as_bytes())
    }

    /// Reads a journal.
    ///
    /// # Errors
    /// Anything but a whole journal whose digest fits.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let io = |source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        };
        let mut text = Vec::new();
        if path.symlink_metadata().map_err(io)?.is_file() {
            let file = read_own(path).map_err(io)?;
            file.take(MAX_BYTES).read_to_end(&mut text).map_err(io)?;
        }
        let journal = String::from_utf8(text).ok().and_then(|text| Self::decode(&text));
        journal.ok_or_else(|| {
            let what = "this is no sound journal of a merge: nothing was changed; what is left of the shards is whole";
            Error::malformed(path, 0, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Journal;
    use crate::digest::Digest;

    #[test]
    fn journals_come_back_whole_or_not_at_all() {
        let journal = Journal {
            prefix: "a name done 3".to_owned(),
            head_bytes: 64,
            head_sha256: Digest([7; 32]),
            tensors: vec![0, 3, 9],
            ends: vec![64, 128, 512],
            done: 1,
        };
        let text = journal.encode();
        assert_eq!(Journal::decode(&text), Some(journal.clone()));
        for i in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            assert_eq!(Journal::decode(&text[..i]), None, "cut at {i}");
            bytes[i] ^= 1;
            let text = String::from_utf8(bytes).expect("ASCII");
            assert_eq!(Journal::decode(&text), None, "changed at {i}");
        }
        for wrong in [
            Journal {
                done: 4,
                ..journal.clone()
            },
            Journal {
                prefix: "../elsewhere".to_owned(),
                ..journal.clone()
            },
            Journal {
                ends: vec![64, 512, 128],
                ..journal
            },
        ] {
            assert_eq!(Journal::decode(&wrong.encode()), None, "{wrong:?}");
        }
    }
}
