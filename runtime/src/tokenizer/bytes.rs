//! The alphabet of byte-level vocabularies: one printable letter a byte.

use std::collections::HashMap;

/// Bytes to letters and back. Printable Latin-1 bytes stand for themselves, the other 68 for U+0100 and on.
#[derive(Debug)]
pub(super) struct ByteAlphabet {
    letters: [char; 256],
    bytes: HashMap<char, u8>,
}

impl ByteAlphabet {
    pub(super) fn new() -> Self {
        let mut letters = ['\0'; 256];
        let mut next = 0x100;
        for (byte, letter) in (0u8..=255).zip(&mut letters) {
            *letter = if matches!(byte, 33..=126 | 161..=172 | 174..=255) {
                char::from(byte)
            } else {
                next += 1;
                char::from_u32(next - 1).expect("U+0100 .. U+0144 are letters")
            };
        }
        Self {
            letters,
            bytes: (0u8..=255).map(|b| (letters[usize::from(b)], b)).collect(),
        }
    }

    /// The letter of a byte.
    pub(super) fn letter(&self, byte: u8) -> char {
        self.letters[usize::from(byte)]
    }

    /// Appends the bytes that a token's text stands for; what is not in the alphabet stands for itself.
    pub(super) fn append_bytes(&self, text: &str, out: &mut Vec<u8>) {
        for c in text.chars() {
            match self.bytes.get(&c) {
                Some(&b) => out.push(b),
                None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_letter() {
        let a = ByteAlphabet::new();
        assert_eq!(a.bytes.len(), 256);
        assert_eq!((a.letter(b'A'), a.letter(b' '), a.letter(b'\n')), ('A', 'Ġ', 'Ċ'));
        let text: String = (0u8..=255).map(|b| a.letter(b)).collect();
        let mut back = Vec::new();
        a.append_bytes(&text, &mut back);
        assert_eq!(back, (0u8..=255).collect::<Vec<_>>());
    }
}
