//! WPM, also called `WordPiece`: words without accents and capitals, each from the longest tokens.

use gguf::Metadata;
use regex::Regex;
use unicode_normalization::UnicodeNormalization as _;

use super::SPACE;
use super::trie::Trie;
use super::vocabulary::Vocabulary;
use crate::Result;

/// Characters that are words by themselves: punctuation, symbols of ASCII, and Chinese ones.
const LONE: &str = r"\p{P}$+<=>^`|~\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}";

/// Characters that a text is read without: the replacement character, and controls, format and private
/// characters that are no spaces.
const DROPPED: &str = r"\x{FFFD}[\p{Cc}\p{Cf}\p{Co}--\s]";

#[derive(Debug)]
pub(super) struct Wpm {
    trie: Trie,
    unknown: Option<u32>,
    lowercase: bool,
    dropped: Regex,
    words: Regex,
}

impl Wpm {
    pub(super) fn new(metadata: &Metadata, vocabulary: &Vocabulary, unknown: Option<u32>) -> Result<Self> {
        let flag = |name: &str| metadata.bool(&format!("tokenizer.ggml.normalizer.{name}"));
        let marks = if flag("strip_accents")?.unwrap_or(true) {
            r"\p{Mn}"
        } else {
            ""
        };
        let regex = |pattern: String| Regex::new(&pattern).expect("a constant pattern compiles");
        Ok(Self {
            trie: vocabulary.trie(|_| true)?,
            unknown,
            lowercase: flag("lowercase")?.unwrap_or(true),
            dropped: regex(format!("[{DROPPED}{marks}]+")),
            words: regex(format!(r"[{LONE}]|[^\s{LONE}]+")),
        })
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let text: String = text.nfd().collect();
        let mut text = self.dropped.replace_all(&text, "").into_owned();
        if self.lowercase {
            text = text.chars().map(lower).collect();
        }
        let mut word = String::new();
        for found in self.words.find_iter(&text) {
            word.clear();
            word.push(SPACE);
            word.push_str(found.as_str());
            let first = out.len();
            let mut at = 0;
            while at < word.len() {
                let Some((len, id)) = self.trie.prefixes(&word.as_bytes()[at..]).last() else {
                    out.truncate(first);
                    out.extend(self.unknown);
                    break;
                };
                out.push(id);
                at += len;
            }
        }
    }
}

/// The lower case of a character if it is one character.
fn lower(c: char) -> char {
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(l), None) => l,
        _ => c,
    }
}
