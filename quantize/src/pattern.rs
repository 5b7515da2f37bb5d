//! Patterns of `--tensor-type` rules: regular expressions of bytes, which find ASCII letters in any case.

use gguf_cli::human_bytes;
use regex::bytes::{Regex, RegexBuilder};

/// Bytes of memory that a pattern counts for at least. What names a tensor, or some of a layer, has fewer when it is
/// compiled.
const LEAST: usize = 16 << 10;

/// Bytes of a compiled pattern at most.
const MOST: usize = 1 << 20;

/// Bytes of a pattern's text at most.
const MOST_TEXT: usize = 4096;

/// What a byte of text counts for at least: classes take memory and time before they are compiled.
const TEXT_BYTE: usize = MOST / MOST_TEXT;

/// A pattern that was compiled.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    size: usize,
}

impl Pattern {
    /// # Errors
    /// In words: a text that is no regular expression, or one that would take too much memory.
    pub(crate) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MOST_TEXT {
            let n = text.len();
            return Err(format!(
                "expected a pattern of at most {MOST_TEXT} bytes, found {n}; make several rules of it"
            ));
        }
        let mut size = LEAST.max(text.len() * TEXT_BYTE);
        loop {
            let built = RegexBuilder::new(text)
                .unicode(false)
                .case_insensitive(true)
                .size_limit(size)
                .dfa_size_limit(4 * size)
                .build();
            match built {
                Ok(regex) => return Ok(Self { regex, size }),
                Err(regex::Error::CompiledTooBig(_)) if size < MOST => size = MOST.min(4 * size),
                Err(regex::Error::CompiledTooBig(_)) => {
                    let most = human_bytes(MOST as u64);
                    return Err(format!(
                        "expected a pattern of at most {most} compiled, found a larger one; repeat less in it"
                    ));
                }
                Err(e) => {
                    // The crate's message draws the pattern over several lines; its last line says what is wrong.
                    let text = e.to_string();
                    let last = text.lines().last().unwrap_or_default().trim();
                    let why = last.strip_prefix("error: ").unwrap_or(last);
                    return Err(format!("not a regular expression of bytes: {why}"));
                }
            }
        }
    }

    /// Whether it is found in a name.
    pub(crate) fn is_in(&self, name: &str) -> bool {
        self.regex.is_match(name.as_bytes())
    }

    /// Bytes of memory that it counts for: what it has compiled, to a factor of four.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_found_anywhere_in_any_case() {
        for (pattern, found, other) in [
            ("ffn_down", "blk.0.FFN_DOWN.weight", "blk.0.ffn_up.weight"),
            (
                "^blk\\.(0|1|2[0-9])\\.attn_[qkv]\\.weight$",
                "blk.27.attn_k.weight",
                "blk.27.attn_k.weight2",
            ),
            (
                "blk\\.\\d+\\.ffn_.*_(exps|shexp)",
                "blk.59.ffn_gate_exps.weight",
                "blk.59.ffn_gate.weight",
            ),
            ("\\bup\\b", "ffn.up.weight", "ffn_up.weight"),
            ("(nothing)?Q", "attn_q", "attn_v"),
            ("a[ab]{40}z", &format!("{}z", "a".repeat(41)), "abz"),
            ("ä.ß", "xä-ß", "Ä-ß"),
            ("(?-i)Q", "attn_Q", "attn_q"),
        ] {
            let compiled = Pattern::compile(pattern).unwrap();
            assert!(compiled.is_in(found) && !compiled.is_in(other), "{pattern}");
        }
    }

    #[test]
    fn patterns_count_for_what_they_take() {
        let size = |pattern: &str| Pattern::compile(pattern).unwrap().size();
        for small in [
            "ffn",
            "blk\\.59\\.ffn_down_exps\\.weight",
            "^blk\\.(0|1|2|3|4|5|6|7)\\.attn_(q|k|v|output)\\.weight$",
            "blk\\.[0-9]+\\.ffn_(up|gate)_shexp",
            "\\w{2}",
        ] {
            assert_eq!(size(small), LEAST, "{small}");
        }
        let layers: Vec<String> = (0..61).map(|i| i.to_string()).collect();
        let many = format!(
            "(blk\\.({})\\..*ffn_.*|output.*|token.*embd.*)\\.(weight|bias)",
            layers.join("|")
        );
        assert!(size(&many) < MOST / 8);
        assert_eq!(size(&"x".repeat(MOST_TEXT / 2)), MOST / 2);
        assert_eq!(size(&"x".repeat(MOST_TEXT)), MOST);
    }

    #[test]
    fn what_is_refused_is_one_line() {
        for (pattern, part) in [
            ("(a{1000}){1000}", "1.00 MiB compiled, found a larger one"),
            (&"x".repeat(MOST_TEXT + 1), "at most 4096 bytes, found 4097"),
            ("(a", "not a regular expression of bytes: unclosed group"),
            ("\\pL", "not a regular expression of bytes: Unicode"),
        ] {
            let text = Pattern::compile(pattern).unwrap_err();
            assert!(text.contains(part) && text.lines().count() == 1, "{text}");
        }
    }
}
