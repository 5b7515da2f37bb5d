//! The old bytes of a head, beside the file while new ones are written over them.
//!
//! `GGUFEDIT`, the version 1, then as u64: bytes of the file, bytes of the old head, place and number of the bytes kept;
//! the SHA-256 of the old head; the bytes kept; the SHA-256 of everything before. Numbers are little-endian.

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::{Error, Result, limits};

const MAGIC: &[u8; 12] = b"GGUFEDIT\x01\0\0\0";
/// Bytes in front of those kept: magic, four numbers, digest.
const FRONT: usize = 12 + 4 * 8 + 32;
const DIGEST: usize = 32;

/// Most bytes of a journal.
pub(super) const MAX_BYTES: u64 = limits::MAX_HEAD_BYTES + limits::MAX_ALIGNMENT + 4096;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Journal {
    /// Bytes of the file.
    pub(super) n_bytes: u64,
    /// Bytes of the old head.
    pub(super) head_bytes: u64,
    /// SHA-256 of the old head.
    pub(super) head_sha256: [u8; 32],
    /// Where the bytes kept stand.
    pub(super) at: u64,
    /// The bytes kept.
    pub(super) bytes: Vec<u8>,
}

impl Journal {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for n in [self.n_bytes, self.head_bytes, self.at, self.bytes.len() as u64] {
            out.extend(n.to_le_bytes());
        }
        out.extend(self.head_sha256);
        out.extend(&self.bytes);
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
                "{what}: this is no sound journal of an edit, nothing was restored; if the model is whole, remove the journal"
            );
            Error::malformed(path, 0, what)
        };
        if bytes.len() < FRONT + DIGEST || !bytes.starts_with(MAGIC) {
            return Err(refuse("expected `GGUFEDIT` and version 1"));
        }
        let (body, digest) = bytes.split_at(bytes.len() - DIGEST);
        if digest != Sha256::digest(body).as_slice() {
            return Err(refuse("the digest at its end does not fit"));
        }
        let number = |i: usize| {
            let at = MAGIC.len() + 8 * i;
            u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"))
        };
        let journal = Self {
            n_bytes: number(0),
            head_bytes: number(1),
            at: number(2),
            head_sha256: body[FRONT - DIGEST..FRONT].try_into().expect("a digest"),
            bytes: body[FRONT..].to_vec(),
        };
        let n = journal.bytes.len() as u64;
        let inside = journal
            .at
            .checked_add(n)
            .is_some_and(|end| end <= journal.head_bytes);
        if number(3) != n || !inside || journal.head_bytes > journal.n_bytes {
            return Err(refuse("its bytes are not inside the head"));
        }
        Ok(journal)
    }
}
