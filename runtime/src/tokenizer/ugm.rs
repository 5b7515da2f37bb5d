//! UGM, also called Unigram: the likeliest way to put a normalized text together from tokens.

use gguf::Metadata;

use super::SPACE_TEXT;
use super::charsmap::Charsmap;
use super::merge::NONE;
use super::special::Kind;
use super::trie::Trie;
use super::vocabulary::{self, Vocabulary};
use crate::Result;

/// What an unknown character costs more than the least likely token.
const UNKNOWN_PENALTY: f32 = 10.0;

#[derive(Debug)]
pub(super) struct Ugm {
    charsmap: Option<Charsmap>,
    trie: Trie,
    /// Logarithms of probabilities; 0 for user-defined tokens, which are always taken.
    scores: Vec<f32>,
    unknown: Option<u32>,
    unknown_score: f32,
    add_space_prefix: bool,
    /// Whether runs of spaces become one and those at both ends none.
    remove_extra_whitespaces: bool,
}

/// The best way to reach a place of the text.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    /// Where its last token starts.
    start: u32,
    token: u32,
}

impl Ugm {
    pub(super) fn new(
        metadata: &Metadata,
        vocabulary: &Vocabulary,
        unknown: Option<u32>,
        add_space_prefix: bool,
    ) -> Result<Self> {
        let mut scores = vocabulary::scores(metadata, vocabulary.len())?;
        let normal = vocabulary.of_kind(|kind| kind == Kind::Normal);
        let lowest = normal.map(|(_, id)| scores[id as usize]).reduce(f32::min);
        for (_, id) in vocabulary.of_kind(|kind| kind == Kind::UserDefined) {
            scores[id as usize] = 0.0;
        }
        let in_texts = |kind| matches!(kind, Kind::Normal | Kind::UserDefined | Kind::Unused);
        Ok(Self {
            charsmap: Charsmap::from_metadata(metadata)?,
            trie: vocabulary.trie(in_texts)?,
            scores,
            unknown,
            unknown_score: lowest.unwrap_or(0.0) - UNKNOWN_PENALTY,
            add_space_prefix,
            remove_extra_whitespaces: metadata
                .bool("tokenizer.ggml.remove_extra_whitespaces")?
                .unwrap_or(false),
        })
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let text = self.normalize(text)?;
        super::check_size(&text)?;
        let unreached = Best {
            score: f64::NEG_INFINITY,
            start: 0,
            token: NONE,
        };
        let mut best = vec![unreached; text.len() + 1];
        best[0].score = 0.0;
        for (at, c) in text.char_indices() {
            let here = best[at].score;
            let mut reach = |len: usize, token: u32, score: f32| {
                let score = here + f64::from(score);
                if score > best[at + len].score {
                    best[at + len] = Best {
                        score,
                        start: at as u32,
                        token,
                    };
                }
            };
            let mut is_known = false;
            for (len, token) in self.trie.prefixes(&text.as_bytes()[at..]) {
                is_known |= len == c.len_utf8();
                reach(len, token, self.scores[token as usize]);
            }
            if !is_known {
                reach(c.len_utf8(), NONE, self.unknown_score);
            }
        }
        let first = out.len();
        let mut end = text.len();
        let mut after = None;
        while end > 0 {
            let Best { start, token, .. } = best[end];
            // Neighbours that are unknown are one.
            if token != NONE {
                out.push(token);
            } else if after != Some(NONE) {
                out.extend(self.unknown);
            }
            after = Some(token);
            end = start as usize;
        }
        out[first..].reverse();
        Ok(())
    }

    /// Replaces characters by the table and spaces by their sign.
    fn normalize(&self, text: &str) -> Result<String> {
        let mut out = Spaces {
            text: String::with_capacity(text.len() + text.len() / 4),
            due: self.add_space_prefix,
            merge: self.remove_extra_whitespaces,
        };
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let replaced = match &self.charsmap {
                Some(map) => map.replace(rest)?,
                None => None,
            };
            let (len, text) = replaced.unwrap_or((c.len_utf8(), &rest[..c.len_utf8()]));
            out.push(text);
            rest = &rest[len..];
        }
        Ok(out.text)
    }
}

/// Text with its spaces written as tokens have them.
struct Spaces {
    text: String,
    /// Whether a space comes in front of the next character that is none.
    due: bool,
    merge: bool,
}

impl Spaces {
    fn push(&mut self, text: &str) {
        for c in text.chars() {
            if c == ' ' && self.merge {
                self.due |= !self.text.is_empty();
                continue;
            }
            if std::mem::take(&mut self.due) {
                self.text.push_str(SPACE_TEXT);
            }
            if c == ' ' {
                self.text.push_str(SPACE_TEXT);
            } else {
                self.text.push(c);
            }
        }
    }
}
