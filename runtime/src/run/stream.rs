//! Tokens as text while they come.

use gguf_cli::Result;

use crate::Tokenizer;

/// What the model has written so far. Text is handed out when it is whole characters and can be no beginning of
/// a text that ends the run.
pub(super) struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    /// Whether control tokens are text.
    special: bool,
    stops: &'a [String],
    /// Takes text as it comes.
    sink: &'a mut dyn FnMut(&str) -> Result<()>,
    /// Bytes behind the last whole character.
    bytes: Vec<u8>,
    text: String,
    /// Bytes of `text` that were handed out.
    n_out: usize,
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        tokenizer: &'a Tokenizer,
        special: bool,
        stops: &'a [String],
        sink: &'a mut dyn FnMut(&str) -> Result<()>,
    ) -> Self {
        Self {
            tokenizer,
            special,
            stops,
            sink,
            bytes: Vec::new(),
            text: String::new(),
            n_out: 0,
        }
    }

    /// Whether a token ends what the model writes.
    pub(super) fn ends(&self, id: u32) -> bool {
        self.tokenizer.ends().binary_search(&id).is_ok()
    }

    /// Adds a token. Returns the number of the stop text that is there now; nothing must follow.
    pub(super) fn push(&mut self, id: u32) -> Result<Option<usize>> {
        if self.special || !self.tokenizer.is_control(id) {
            self.tokenizer.append_bytes(id, &mut self.bytes);
        }
        let from = self.text.len();
        take_whole(&mut self.bytes, &mut self.text);
        if self.text.len() == from {
            return Ok(None);
        }
        if let Some((at, stop)) = self.find_stop() {
            self.text.truncate(at);
            // What has begun but is no whole character stands behind the stop text.
            self.bytes.clear();
            self.out(at)?;
            return Ok(Some(stop));
        }
        self.out(self.text.len() - self.held())?;
        Ok(None)
    }

    /// Hands out what is left and returns the whole text.
    pub(super) fn finish(mut self) -> Result<String> {
        let rest = String::from_utf8_lossy(&self.bytes).into_owned();
        self.text.push_str(&rest);
        self.out(self.text.len())?;
        Ok(self.text)
    }

    /// The stop text that begins first in what was not handed out.
    fn find_stop(&self) -> Option<(usize, usize)> {
        let rest = &self.text[self.n_out..];
        let found = self.stops.iter().zip(0..).filter_map(|(stop, i)| {
            let at = rest.find(stop.as_str())?;
            Some((self.n_out + at, i))
        });
        found.min()
    }

    /// Bytes at the end that may be the beginning of a stop text.
    fn held(&self) -> usize {
        let rest = &self.text[self.n_out..];
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let mut tails = rest.char_indices().map(|(at, _)| &rest[at..]);
        let begins = |tail: &&str| self.stops.iter().any(|stop| stop.starts_with(*tail));
        let found = tails.find(|tail| tail.len() < longest && begins(tail));
        found.map_or(0, str::len)
    }

    fn out(&mut self, end: usize) -> Result<()> {
        if end > self.n_out {
            (self.sink)(&self.text[self.n_out..end])?;
            self.n_out = end;
        }
        Ok(())
    }
}

/// Moves all characters that are whole to `text`, with U+FFFD for bytes that are none.
fn take_whole(bytes: &mut Vec<u8>, text: &mut String) {
    let mut done = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        done += chunk.valid().len();
        let broken = chunk.invalid();
        // At the end it may be a character that goes on.
        let open = done + broken.len() == bytes.len() && !broken.is_empty() && may_go_on(broken);
        if !broken.is_empty() && !open {
            text.push(char::REPLACEMENT_CHARACTER);
            done += broken.len();
        }
    }
    bytes.drain(..done);
}

/// Whether bytes are the beginning of a character.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::tokenizer;

    /// What is handed out behind each byte, and the whole text. The test's tokens are bytes.
    fn run(bytes: &[u8], stops: &[&str]) -> (Vec<String>, String, Option<usize>) {
        let tokenizer = tokenizer();
        let stops: Vec<String> = stops.iter().map(|&s| s.to_owned()).collect();
        let mut out: Vec<String> = Vec::new();
        let mut sink = |text: &str| {
            out.push(text.to_owned());
            Ok(())
        };
        let mut stream = Stream::new(&tokenizer, false, &stops, &mut sink);
        let mut stopped = None;
        for &b in bytes {
            stopped = stream.push(u32::from(b)).unwrap();
            if stopped.is_some() {
                break;
            }
        }
        let text = stream.finish().unwrap();
        assert_eq!(out.concat(), text);
        (out, text, stopped)
    }

    #[test]
    fn characters_come_whole() {
        let (out, ..) = run("aä—𝄞".as_bytes(), &[]);
        assert_eq!(out, ["a", "ä", "—", "𝄞"]);
        assert_eq!(run(b"a\xC3(\xE2\x80", &[]).1, "a\u{FFFD}(\u{FFFD}");
        assert_eq!(run(b"\x80\xFFz", &[]).1, "\u{FFFD}\u{FFFD}z");
    }

    #[test]
    fn stop_texts_never_show() {
        let (out, text, stopped) = run(b"one\nUser: two", &["\nUser:", "\nBot:"]);
        assert_eq!((text.as_str(), stopped), ("one", Some(0)));
        assert_eq!(out, ["o", "n", "e"]);
        // What begins like one comes when it is none.
        let (out, text, stopped) = run(b"a\nUs\nBz", &["\nUser:", "\nBot:"]);
        assert_eq!((text.as_str(), stopped), ("a\nUs\nBz", None));
        assert_eq!(out, ["a", "\nUs", "\nBz"]);
        assert_eq!(run(b"aab!", &["ab"]).1, "a");
        assert_eq!(run("xéy".as_bytes(), &["é"]).1, "x");
    }

    #[test]
    fn control_tokens_are_no_text() {
        let tokenizer = tokenizer();
        let eos = tokenizer.eos().unwrap();
        for (special, expected) in [(false, "ab"), (true, "a<eos>b")] {
            let mut sink = |_: &str| Ok(());
            let mut stream = Stream::new(&tokenizer, special, &[], &mut sink);
            for id in [u32::from(b'a'), eos, u32::from(b'b')] {
                stream.push(id).unwrap();
            }
            assert_eq!(stream.finish().unwrap(), expected);
        }
    }
}
