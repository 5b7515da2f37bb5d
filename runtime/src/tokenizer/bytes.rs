//! Bytes as tokens: the alphabet of byte-level vocabularies, one printable letter a byte, and the byte tokens
//! `<0x00>` .. `<0xFF>` of the others.

use std::collections::HashMap;

use super::vocabulary::Vocabulary;

/// Bytes to letters and back. Printable Latin-1 bytes stand for themselves, the other 68 for U+0100 and on.
#[derive(Debug)]
pub(super) struct ByteAlphabet {
    letters: Box<[char; 256]>,
    bytes: HashMap<char, u8>,
}

impl ByteAlphabet {
    pub(super) fn new() -> Self {
        let mut letters = Box::new(['\0'; 256]);
        let mut next = 0x100;
        for (byte, letter) in (0u8..=255).zip(letters.iter_mut()) {
            *letter = if matches!(byte, 33..=126 | 161..=172 | 174..=255) {
                char::from(byte)
            } else {
                next += 1;
                char::from_u32(next - 1).expect("U+0100 .. U+0144 are letters")
            };
        }
        let bytes = letters.iter().copied().zip(0u8..=255).collect();
        Self { letters, bytes }
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

/// The token of each byte: `<0xXX>`, or else the character.
pub(super) fn tokens(vocabulary: &Vocabulary) -> [Option<u32>; 256] {
    let mut byte = 0u8;
    [(); 256].map(|()| {
        let text = format!("<0x{byte:02X}>");
        let raw = || {
            let c = char::from(byte);
            c.is_ascii()
                .then(|| vocabulary.id(c.encode_utf8(&mut [0; 4])))
                .flatten()
        };
        let id = vocabulary.id(&text).or_else(raw);
        byte = byte.wrapping_add(1);
        id
    })
}

/// The byte that a byte token stands for.
pub(super) fn value(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)
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

    #[test]
    fn byte_tokens_are_read() {
        assert_eq!(value("<0x0A>"), Some(10));
        assert_eq!(value("<0xff>"), Some(255));
        for text in ["<0x>", "<0x123>", "0x0A", "<0x+1>", "<0xGG>"] {
            assert_eq!(value(text), None, "{text}");
        }
    }
}
