//! UGM, also called Unigram: the likeliest way to put a normalized text together from tokens.

use gguf::Metadata;

use super::SPACE_TEXT;
use super::charsmap::{self, Charsmap, MAX_REPLACEMENT};
use super::merge::NONE;
use super::special::Kind;
use super::trie::Trie;
use super::vocabulary::{self, MAX_TRIE_TOKEN, Vocabulary, key_error};
use crate::{Error, Result};

/// What an unknown character costs more than the least likely token.
const UNKNOWN_PENALTY: f32 = 10.0;

/// Bytes of a normalized text for each of the text, at most. Compatibility mappings make 11 of one, and spaces among them
/// become three each.
const MAX_GROWTH: usize = 16;

/// Places whose scores are kept: a token reaches the last of them from any.
const WINDOW: usize = (MAX_TRIE_TOKEN + 1).next_power_of_two();

#[derive(Debug)]
pub(super) struct Ugm {
    charsmap: Option<Charsmap>,
    trie: Trie,
    /// Logarithms of probabilities; 0 for user-defined tokens, which are always taken.
    scores: Vec<f32>,
    /// Bytes of each token of the trie.
    lens: Vec<u16>,
    unknown: Option<u32>,
    unknown_score: f32,
    add_space_prefix: bool,
    /// Whether runs of spaces become one and those at both ends none.
    remove_extra_whitespaces: bool,
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
            lens: vocabulary
                .texts
                .iter()
                .map(|text| u16::try_from(text.len()).unwrap_or(u16::MAX))
                .collect(),
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
        // Scores of the best ways to the next places, and of each place the last token of the best way there.
        let mut scores = [f64::NEG_INFINITY; WINDOW];
        scores[0] = 0.0;
        let mut last = vec![NONE; text.len() + 1];
        for (at, c) in text.char_indices() {
            let here = std::mem::replace(&mut scores[at % WINDOW], f64::NEG_INFINITY);
            let mut reach = |len: usize, token: u32, score: f32| {
                let (best, score) = (&mut scores[(at + len) % WINDOW], here + f64::from(score));
                if score > *best {
                    *best = score;
                    last[at + len] = token;
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
        let mut left = &*text;
        let mut after = None;
        while let Some(c) = left.chars().next_back() {
            let token = last[left.len()];
            // Neighbours that are unknown are one.
            if token != NONE {
                out.push(token);
            } else if after != Some(NONE) {
                out.extend(self.unknown);
            }
            after = Some(token);
            let len = match token {
                NONE => c.len_utf8(),
                token => self.lens[token as usize].into(),
            };
            left = &left[..left.len() - len];
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
            let (len, replaced) = replaced.unwrap_or((c.len_utf8(), &rest[..c.len_utf8()]));
            out.push(replaced);
            rest = &rest[len..];
            let n_read = text.len() - rest.len();
            if out.text.len() > SPACE_TEXT.len() + MAX_REPLACEMENT + MAX_GROWTH * n_read {
                return Err(blows_up(out.text.len(), n_read));
            }
        }
        Ok(out.text)
    }
}

fn blows_up(found: usize, n_read: usize) -> Error {
    let expected = format!("replacements of at most {MAX_GROWTH} bytes for each of a text");
    key_error(charsmap::KEY, &expected, format!("{found} bytes for {n_read}"))
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

#[cfg(test)]
mod tests {
    use gguf::{Array, Value};

    use super::*;
    use crate::tokenizer::charsmap::tests::blob;

    fn ugm(tokens: &[(&str, f32)], replacements: &[(&str, &str)]) -> Result<Ugm> {
        let mut metadata = Metadata::new();
        let mut set = |key: &str, value: Value| metadata.set(format!("tokenizer.ggml.{key}"), value);
        let texts: Vec<String> = tokens.iter().map(|(text, _)| (*text).to_owned()).collect();
        set("tokens", Value::from(texts));
        let scores = tokens.iter().map(|&(_, score)| score).collect();
        set("scores", Value::Array(Array::F32(scores)));
        if !replacements.is_empty() {
            let table = blob(replacements);
            set("precompiled_charsmap", Value::Array(Array::U8(table)));
        }
        let vocabulary = Vocabulary::from_metadata(&metadata)?;
        Ugm::new(&metadata, &vocabulary, Some(0), false)
    }

    fn encode(ugm: &Ugm, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        ugm.encode(text, &mut ids)?;
        Ok(ids)
    }

    #[test]
    fn replacements_that_blow_a_text_up_are_refused() {
        let long = "x".repeat(MAX_REPLACEMENT);
        let usual = "x".repeat(11);
        let ugm = ugm(
            &[("?", 0.0), ("x", -1.0)],
            &[("b", &long), ("c", "  "), ("é", &usual)],
        );
        let ugm = ugm.expect("a sound table");
        let bomb = "b".repeat(100_000);
        let message = encode(&ugm, &bomb).expect_err("refused").to_string();
        assert!(
            message.contains(charsmap::KEY) && message.contains("at most 16 bytes"),
            "{message}"
        );
        // It is refused long before all is written.
        let shown: Vec<usize> = message.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(shown.iter().all(|&n| n < 1000), "{message}");
        for (text, n) in [("b", MAX_REPLACEMENT), ("éé", 22), ("c", 0)] {
            let ids = encode(&ugm, text).expect("not much longer");
            assert_eq!(ids.iter().filter(|&&id| id == 1).count(), n, "{text}");
        }
        assert!(encode(&ugm, &"c".repeat(10_000)).is_ok());
    }

    #[test]
    fn the_longest_tokens_reach_over_the_whole_window() {
        let long = "a".repeat(MAX_TRIE_TOKEN);
        let ugm = ugm(&[("?", 0.0), ("a", -1.0), (&long, -2.0), ("é", -9.0)], &[]);
        let ugm = ugm.expect("tokens of the longest length");
        let text = format!("é{long}{long}{long}aé~~");
        assert_eq!(encode(&ugm, &text).expect("sound"), [3, 1, 2, 2, 2, 3, 0]);
        let text = "a".repeat(MAX_TRIE_TOKEN - 1);
        assert_eq!(encode(&ugm, &text).expect("sound"), vec![1; MAX_TRIE_TOKEN - 1]);
    }
}
