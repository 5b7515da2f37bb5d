//! The old bytes of a head, beside the file while new ones are written over them.
//!
//! `GGUFEDIT`, the version 1 as u32, then as u64 the bytes of the file and of the old head; the SHA-256 of the old head;
//! for each range that changes, as u64, its place and length, and the bytes; the SHA-256 of everything before. Numbers
//! are little-endian.

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::{Error, Result, limits};

const MAGIC: &[u8; 12] = b"GGUFEDIT\x01\0\0\0";
const DIGEST: usize = 32;

/// Most bytes of a journal: a head, and what stands around its ranges, which are pages apart.
pub(super) const MAX_BYTES: u64 = 2 * (limits::MAX_HEAD_BYTES + limits::MAX_ALIGNMENT);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Journal {
    /// Bytes of the file.
    pub(super) n_bytes: u64,
    /// Bytes of the old head.
    pub(super) head_bytes: u64,
    /// SHA-256 of the old head.
    pub(super) head_sha256: [u8; 32],
    /// Places in the head and the bytes that were there.
    pub(super) ranges: Vec<(u64, Vec<u8>)>,
}

impl Journal {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.n_bytes.to_le_bytes());
        out.extend(self.head_bytes.to_le_bytes());
        out.extend(self.head_sha256);
        for (at, bytes) in &self.ranges {
            out.extend(at.to_le_bytes());
            out.extend((bytes.len() as u64).to_le_bytes());
            out.extend(bytes);
        }
        out.extend(Sha256::digest(&out));
        out
    }

    /// Takes a journal apart.
    ///
    /// # Errors
    /// Anything but a whole journal whose digest fits.
    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        let refuse = |what: &str| {
            let what = format!(
                "{what}: this is no sound journal of an edit, nothing was restored; if the model is whole, remove \
                 the journal"
            );
            Error::malformed(path, 0, what)
        };
        if !bytes.starts_with(MAGIC) {
            return Err(refuse("expected `GGUFEDIT` and version 1"));
        }
        let Some((body, digest)) = bytes.split_last_chunk::<DIGEST>() else {
            return Err(refuse("it is cut short"));
        };
        if digest != Sha256::digest(body).as_slice() {
            return Err(refuse("the digest at its end does not fit"));
        }
        Self::parse(&body[MAGIC.len()..]).ok_or_else(|| refuse("its bytes are not inside the head"))
    }

    fn parse(mut rest: &[u8]) -> Option<Self> {
        let mut journal = Self {
            n_bytes: number(&mut rest)?,
            head_bytes: number(&mut rest)?,
            head_sha256: *rest.split_off(..DIGEST)?.first_chunk()?,
            ranges: Vec::new(),
        };
        while !rest.is_empty() {
            let (at, n) = (number(&mut rest)?, number(&mut rest)?);
            let bytes = rest.split_off(..usize::try_from(n).ok()?)?;
            if at.checked_add(n)? > journal.head_bytes {
                return None;
            }
            journal.ranges.push((at, bytes.to_vec()));
        }
        (journal.head_bytes <= journal.n_bytes && journal.head_bytes <= MAX_BYTES).then_some(journal)
    }
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?))
}
