//! SHA-256 digests as values and text.

use std::fmt::{self, Write as _};
use std::ops::Range;

use sha2::{Digest as _, Sha256};

use crate::source::Source;
use crate::{Result, copy};

/// A SHA-256, shown in lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of the pieces, one behind the other, that `all` calls its argument with.
    ///
    /// # Errors
    /// Those of `all`.
    pub fn of_pieces<E>(all: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), E>) -> Result<Self, E> {
        let mut sha = Sha256::new();
        all(&mut |bytes| sha.update(bytes))?;
        Ok(Self(sha.finalize().into()))
    }

    /// From 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut sha = [0; 32];
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, i) in sha.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[i..i + 2], 16).ok()?;
        }
        Some(Self(sha))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The digest of a range of a source, read piece after piece. `on` hears of the bytes of each; an error of its own ends
/// the work.
///
/// # Errors
/// A failed read.
pub fn of_source(
    source: &dyn Source,
    range: Range<u64>,
    on: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Digest> {
    Digest::of_pieces(|add| {
        copy::pieces(source, range, |bytes| {
            add(bytes);
            on(bytes.len() as u64)
        })
    })
}

/// Lines of text with a last one that proves them whole: `sha256` and the digest of those before.
pub(crate) fn seal(mut lines: String) -> String {
    let digest = Digest::of(lines.as_bytes());
    // Writing to a string does not fail.
    let _ = writeln!(lines, "sha256 {digest}");
    lines
}

/// The lines that [`seal`] was given, without the last line's end; `None` if a byte is not as it was.
pub(crate) fn unseal(text: &str) -> Option<&str> {
    let (lines, digest) = text.strip_suffix('\n')?.rsplit_once("sha256 ")?;
    let whole = Digest::parse(digest)? == Digest::of(lines.as_bytes());
    lines.strip_suffix('\n').filter(|_| whole)
}

#[cfg(test)]
mod tests {
    use super::{Digest, seal, unseal};

    #[test]
    fn sealed_lines_come_back_whole_or_not_at_all() {
        let text = seal("one\nsha256 two\n".to_owned());
        assert_eq!(unseal(&text), Some("one\nsha256 two"));
        for i in 0..text.len() {
            assert_eq!(unseal(&text[..i]), None, "cut at {i}");
            let mut bytes = text.clone().into_bytes();
            bytes[i] ^= 1;
            let text = String::from_utf8(bytes).expect("ASCII");
            assert_eq!(unseal(&text), None, "changed at {i}");
        }
    }

    #[test]
    fn digests_read_as_they_are_written() {
        let digest = Digest::of(b"abc");
        let text = digest.to_string();
        // The example of FIPS 180.
        assert_eq!(
            text,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(Digest::parse(&text), Some(digest));
        assert_eq!(Digest::parse(&text[1..]), None);
        assert_eq!(Digest::parse(&text.replace('b', "g")), None);
    }
}
