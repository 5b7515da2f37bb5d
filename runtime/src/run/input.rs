//! Texts of the command line.

use std::io::Read as _;
use std::path::Path;

use gguf_cli::{Failure, Result};

use super::args::InputArgs;
use crate::Tokenizer;

/// Bytes of a text from stdin at most, as of one from a file.
const MAX_STDIN: u64 = 1 << 30;

impl InputArgs {
    /// The text, if one is given.
    pub(super) fn text(&self) -> Result<Option<String>> {
        let text = match (&self.prompt, &self.file) {
            (Some(prompt), _) => return self.unescaped(prompt).map(Some),
            (None, None) => return Ok(None),
            (None, Some(path)) if path == Path::new("-") => from_stdin()?,
            (None, Some(path)) => gguf_cli::read_text(path)?,
        };
        let bare = text.strip_suffix('\n').map(|t| t.strip_suffix('\r').unwrap_or(t));
        Ok(Some(bare.unwrap_or(&text).to_owned()))
    }

    /// An option's text as it is meant.
    pub(super) fn unescaped(&self, text: &str) -> Result<String> {
        if self.escape {
            unescape(text)
        } else {
            Ok(text.to_owned())
        }
    }
}

fn from_stdin() -> Result<String> {
    let mut bytes = Vec::new();
    let read = std::io::stdin()
        .lock()
        .take(MAX_STDIN + 1)
        .read_to_end(&mut bytes);
    read.map_err(|e| Failure::Usage(format!("cannot read the standard input: {e}")))?;
    if bytes.len() as u64 > MAX_STDIN {
        let text = "standard input: expected a text of at most 1.00 GiB, found more; cut it";
        return Err(Failure::Input(text.into()));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::Input(format!(
            "standard input at byte {at}: expected UTF-8 text, found other bytes"
        ))
    })
}

/// Takes `\n`, `\r`, `\t`, `\\`, `\'`, `\"` and `\xHH` for what they stand for; other backslashes stay.
fn unescape(text: &str) -> Result<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let (value, n) = match (byte, behind) {
            (b'\\', [b'n', ..]) => (b'\n', 1),
            (b'\\', [b'r', ..]) => (b'\r', 1),
            (b'\\', [b't', ..]) => (b'\t', 1),
            (b'\\', [c @ (b'\\' | b'\'' | b'"'), ..]) => (*c, 1),
            (b'\\', [b'x', high, low, ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => (byte, 0),
            },
            _ => (byte, 0),
        };
        out.push(value);
        rest = &behind[n..];
    }
    String::from_utf8(out).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::Usage(format!(
            "`-e`: expected UTF-8 behind the escapes, found other bytes at byte {at} of `{text}`"
        ))
    })
}

fn hex(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).map(|d| d as u8)
}

/// The ids of a prompt, texts of control tokens taken for the tokens. A text that begins with the token that the
/// file asks for in front does not get it twice; what it asks for behind would end the text and is left out.
pub(super) fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let mut ids = tokenizer.encode(text, true, true)?;
    if let Some(leading) = tokenizer.leading()
        && ids.starts_with(&[leading, leading])
    {
        ids.remove(0);
    }
    if tokenizer.trailing().is_some() {
        ids.pop();
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::tokenizer;

    #[test]
    fn escapes_stand_for_characters() {
        let text = unescape(r#"a\nb\t\\n\"\'\r\xC3\xA4\q\x4\"#).unwrap();
        assert_eq!(text, "a\nb\t\\n\"'\rä\\q\\x4\\");
        assert!(unescape(r"a\xff").is_err());
    }

    #[test]
    fn one_token_stands_in_front() {
        let ids = |text| encode(&tokenizer(), text).unwrap();
        assert_eq!(ids("a"), [256, 97]);
        assert_eq!(ids("<bos>a"), [256, 97]);
        assert_eq!(ids(""), [256]);
    }
}
