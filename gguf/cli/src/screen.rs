//! What may reach a terminal: strings from files can have characters that move the cursor, hide or turn round what
//! stands there, or make the terminal do things.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Whether a character acts on a terminal in place of being shown: controls, and those that end a line or set its
/// direction.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Whether a character in a name is not to be seen, or acts on a terminal. Joiners are none of that in running text,
/// which some scripts and emoji need them for, but two names may differ by one alone.
fn hides(c: char) -> bool {
    acts(c) || matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// Text of a file on one line of a terminal: what could move the cursor, hide or turn round what follows, or is not to
/// be seen, is escaped, as Rust has it (`\u{1b}`).
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, hides)
}

/// The same for text of several lines: line breaks and tabs stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c| hides(c) && !matches!(c, '\n' | '\t'))
}

/// The same for text that is asked for as it stands: only what acts on the terminal is escaped.
fn harmless(text: &str) -> Cow<'_, str> {
    escaped(text, |c| acts(c) && !matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_hidden) {
        return text.into();
    }
    let mut line = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line.into()
}

/// JSON in which such characters, which can only stand in its strings, are escaped as JSON has it. All of them are of
/// 16 bits.
fn in_json(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| hides(c) && c != '\n';
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut line = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) {
            let _ = write!(line, "\\u{:04x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    line.into()
}

/// What the bytes are that go to a [`Screen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What people asked for, as it stands.
    Data,
    Text,
    Json,
}

/// Passes bytes on with what acts on a terminal escaped. Bytes that are not UTF-8 are shown as `\xNN`.
pub(crate) struct Screen<W> {
    out: W,
    kind: Kind,
    /// The begin of a character whose other bytes are still to come.
    begun: Vec<u8>,
}

impl<W: Write> Screen<W> {
    pub(crate) fn new(out: W, kind: Kind) -> Self {
        Self {
            out,
            kind,
            begun: Vec::new(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.utf8_chunks() {
            let text = match self.kind {
                Kind::Data => harmless(chunk.valid()),
                Kind::Text => visible(chunk.valid()),
                Kind::Json => in_json(chunk.valid()),
            };
            self.out.write_all(text.as_bytes())?;
            for byte in chunk.invalid() {
                write!(self.out, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }

    /// Passes on what is left, at the end of all.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let begun = std::mem::take(&mut self.begun);
        self.put(&begun)?;
        self.out.flush()
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let last = all.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
        let is_begun = !last.is_empty() && std::str::from_utf8(last).is_err_and(|e| e.error_len().is_none());
        let whole = all.len() - if is_begun { last.len() } else { 0 };
        self.put(&all[..whole])?;
        self.begun = all.split_off(whole);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{Kind, Screen, harmless, printable, visible};

    const HOSTILE: &str = "a\u{1b}[2J\u{9b}1m\u{7f}\r\n\t\u{202e}\u{2066}\u{2028}\u{61c}é\u{200b}\u{feff}";

    #[test]
    fn nothing_that_acts_on_a_terminal_is_left() {
        assert_eq!(
            printable(HOSTILE),
            "a\\u{1b}[2J\\u{9b}1m\\u{7f}\\r\\n\\t\\u{202e}\\u{2066}\\u{2028}\\u{61c}é\\u{200b}\\u{feff}"
        );
        assert_eq!(
            visible(HOSTILE),
            "a\\u{1b}[2J\\u{9b}1m\\u{7f}\\r\n\t\\u{202e}\\u{2066}\\u{2028}\\u{61c}é\\u{200b}\\u{feff}"
        );
        assert_eq!(harmless("\u{200d}\u{200e}"), "\u{200d}\\u{200e}");
        assert_eq!(visible("plain\ntext ü"), "plain\ntext ü");
    }

    /// Whatever the pieces in which the bytes come.
    #[test]
    fn bytes_pass_through_as_text() {
        for n in 1..HOSTILE.len() {
            let mut out = Vec::new();
            let mut screen = Screen::new(&mut out, Kind::Text);
            for piece in HOSTILE.as_bytes().chunks(n) {
                screen.write_all(piece).expect("memory");
            }
            screen.write_all(b"\x9b\xff\xe2\x80").expect("memory");
            screen.finish().expect("memory");
            let expected = format!("{}\\x9b\\xff\\xe2\\x80", visible(HOSTILE));
            assert_eq!(String::from_utf8(out).expect("UTF-8"), expected, "pieces of {n}");
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ HOSTILE: [HOSTILE, 1] });
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, Kind::Json);
        serde_json::to_writer_pretty(&mut screen, &value).expect("memory");
        screen.finish().expect("memory");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(visible(&text) == text, "{text}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON"),
            value
        );
    }
}
