//! The tokens of a file: texts, kinds, scores.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use gguf::{Array, Metadata};

use super::automaton::Automaton;
use super::special::{self, Kind};
use super::trie::Trie;
use crate::{Error, Result};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";

/// Bytes of the longest token of families that look for tokens at each place. Pieces of Unigram are trained with 16
/// characters at most, words of `WordPiece` are cut at 200; byte-level vocabularies, which are not looked up so, have
/// runs of 128 spaces.
pub(super) const MAX_TRIE_TOKEN: usize = 512;

/// The tokens, in order of their ids.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) texts: Vec<Arc<str>>,
    pub(super) kinds: Vec<Kind>,
    ids: HashMap<Arc<str>, u32>,
}

impl Vocabulary {
    pub(super) fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let texts = texts(metadata)?;
        let mut ids = HashMap::with_capacity(texts.len());
        for (text, id) in texts.iter().zip(0u32..) {
            if let Some(first) = ids.insert(Arc::clone(text), id) {
                let found = format!("`{text}` twice: ids {first} and {id}");
                return Err(key_error(TOKENS, "tokens that are all different", found));
            }
        }
        let kinds = special::kinds(&texts, kind_numbers(metadata, texts.len())?);
        Ok(Self { texts, kinds, ids })
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The token with this text.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The tokens of the kinds that `wanted` picks, with their ids.
    pub(super) fn of_kind(&self, wanted: impl Fn(Kind) -> bool) -> impl Iterator<Item = (&str, u32)> {
        let all = self.texts.iter().zip(&self.kinds).zip(0u32..);
        all.filter(move |((_, kind), _)| wanted(**kind))
            .map(|((text, _), id)| (&**text, id))
    }

    /// The tokens of the kinds that `wanted` picks, to be found at the start of texts. They are looked for at each place
    /// of a text, so that their length is a factor of time.
    pub(super) fn trie(&self, wanted: impl Fn(Kind) -> bool) -> Result<Trie> {
        let is_long = |(text, _): &(&str, u32)| text.len() > MAX_TRIE_TOKEN;
        if let Some((text, id)) = self.of_kind(&wanted).find(is_long) {
            let expected = format!("tokens of at most {MAX_TRIE_TOKEN} bytes in a vocabulary of this family");
            return Err(key_error(
                TOKENS,
                &expected,
                format!("{} in token {id}", text.len()),
            ));
        }
        Trie::new(self.of_kind(wanted)).ok_or_else(too_much)
    }

    /// The same, to be found anywhere in texts.
    pub(super) fn automaton(&self, wanted: impl Fn(Kind) -> bool) -> Result<Automaton> {
        Automaton::new(self.of_kind(wanted)).ok_or_else(too_much)
    }
}

fn too_much() -> Error {
    key_error(TOKENS, "less than 4 GiB of text", "more".into())
}

/// Token texts; empty ones get the reference's stand-in.
fn texts(metadata: &Metadata) -> Result<Vec<Arc<str>>> {
    let tokens = metadata
        .strings(TOKENS)?
        .ok_or_else(|| missing(TOKENS, "an array of strings"))?;
    if u32::try_from(tokens.len()).is_err() {
        return Err(key_error(
            TOKENS,
            "less than 2^32 tokens",
            tokens.len().to_string(),
        ));
    }
    if let Some(i) = tokens.first_not_utf8() {
        return Err(key_error(TOKENS, "UTF-8", format!("other bytes in token {i}")));
    }
    let named = tokens.iter().enumerate();
    Ok(named
        .map(|(i, text)| {
            if text.is_empty() {
                format!("[EMPTY_{i}]").into()
            } else {
                Arc::from(&*text)
            }
        })
        .collect())
}

fn kind_numbers(metadata: &Metadata, n_vocab: usize) -> Result<Option<Vec<i64>>> {
    let numbers: Vec<i64> = match metadata.array(TYPES)? {
        None => return Ok(None),
        Some(Array::I32(v)) => v.iter().map(|&x| x.into()).collect(),
        Some(Array::U32(v)) => v.iter().map(|&x| x.into()).collect(),
        Some(Array::U8(v)) => v.iter().map(|&x| x.into()).collect(),
        Some(_) => {
            return Err(key_error(
                TYPES,
                "an array of i32",
                "an array of another type".into(),
            ));
        }
    };
    check_len(TYPES, numbers.len(), n_vocab)?;
    Ok(Some(numbers))
}

/// A score a token: the higher, the sooner it is made or the likelier it is.
pub(super) fn scores(metadata: &Metadata, n_vocab: usize) -> Result<Vec<f32>> {
    let scores: Vec<f32> = match metadata.array(SCORES)? {
        None => return Err(missing(SCORES, "an array of f32")),
        Some(Array::F32(v)) => v.clone(),
        Some(Array::I32(v)) => v.iter().map(|&x| x as f32).collect(),
        Some(_) => {
            return Err(key_error(
                SCORES,
                "an array of f32",
                "an array of another type".into(),
            ));
        }
    };
    check_len(SCORES, scores.len(), n_vocab)?;
    if let Some(i) = scores.iter().position(|s| !s.is_finite()) {
        let found = format!("{} for token {i}", scores[i]);
        return Err(key_error(SCORES, "finite numbers", found));
    }
    Ok(scores)
}

fn check_len(key: &str, found: usize, n_vocab: usize) -> Result<()> {
    if found == n_vocab {
        return Ok(());
    }
    let expected = format!("one value for each of the {n_vocab} tokens");
    Err(key_error(key, &expected, format!("{found} values")))
}

/// A key whose value is not what the vocabulary needs.
pub(super) fn key_error(key: &str, expected: &str, found: String) -> Error {
    gguf::Error::Key {
        key: key.into(),
        expected: expected.into(),
        found: found.into(),
    }
    .into()
}

/// A key that the vocabulary needs and the file does not have.
pub(super) fn missing(key: &str, expected: &str) -> Error {
    key_error(key, expected, "nothing".into())
}
