//! What is read of tokenizer.json.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;

use crate::error::Error;

/// tokenizer.json.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(expecting = "an object with a `model`")]
pub(crate) struct TokenizerJson {
    #[serde(default)]
    pub(crate) added_tokens: Vec<AddedToken>,
    #[serde(default)]
    pub(crate) normalizer: Json,
    #[serde(default)]
    pub(crate) pre_tokenizer: Json,
    #[serde(default)]
    pub(crate) post_processor: Json,
    #[serde(default)]
    pub(crate) decoder: Json,
    pub(crate) model: Model,
}

/// A token that is not made by merging.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(expecting = "an added token: an object with `id` and `content`")]
pub(crate) struct AddedToken {
    pub(crate) id: u64,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) special: bool,
}

/// The tokenizer's model.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(expecting = "the tokenizer's model: an object with `vocab` and `merges`")]
pub(crate) struct Model {
    /// `BPE`, `Unigram`, ..; old files leave `BPE` out.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) ignore_merges: Option<bool>,
    /// Whether characters without a token become tokens of bytes.
    #[serde(default)]
    pub(crate) byte_fallback: Option<bool>,
    /// Text of the token of what has no token, in BPE and `WordPiece`.
    #[serde(default)]
    pub(crate) unk_token: Option<String>,
    /// Its id, in Unigram.
    #[serde(default)]
    pub(crate) unk_id: Option<u64>,
    /// What marks a token at a word's end: no vocabulary of GGUF has it.
    #[serde(default)]
    pub(crate) end_of_word_suffix: Json,
    /// What marks a token inside a word, in `WordPiece`.
    #[serde(default)]
    pub(crate) continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub(crate) vocab: Vocab,
    /// As GGUF has them: two parts with a blank between.
    #[serde(default, deserialize_with = "merges")]
    pub(crate) merges: Vec<String>,
}

/// The tokens of a model.
#[derive(Debug)]
pub(crate) enum Vocab {
    /// Text and id.
    Ids(Vec<(String, u64)>),
    /// Text and score, in order of the ids.
    Scores(Vec<(String, f32)>),
}

impl Vocab {
    /// Text and id of each token.
    ///
    /// # Errors
    /// Tokens without ids. `object` is what has them, for the message.
    pub(super) fn ids(self, object: String) -> crate::Result<Vec<(String, u64)>> {
        match self {
            Self::Ids(pairs) => Ok(pairs),
            Self::Scores(_) => Err(Error::mismatch(object, "an object of tokens and ids", "a list")),
        }
    }
}

impl Default for Vocab {
    fn default() -> Self {
        Self::Ids(Vec::new())
    }
}

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Tokens;
        impl<'de> Visitor<'de> for Tokens {
            type Value = Vocab;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tokens and ids, or a list of tokens and scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Vocab::Ids(pairs))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vocab, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = seq.next_element()? {
                    pairs.push(pair);
                }
                Ok(Vocab::Scores(pairs))
            }
        }
        d.deserialize_any(Tokens)
    }
}

fn merges<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    let merges = Vec::<Merge>::deserialize(d)?;
    Ok(merges.into_iter().map(|m| m.0).collect())
}

/// A merge: `"left right"` in older files, `["left", "right"]` in newer ones, where a part may hold blanks.
struct Merge(String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge: a string with a blank, or two strings")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Merge, E> {
                Ok(Merge(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Merge, A::Error> {
                let mut part = |i| {
                    let part = seq.next_element::<String>()?;
                    part.ok_or_else(|| serde::de::Error::invalid_length(i, &Parts))
                };
                let (left, right) = (part(0)?, part(1)?);
                if seq.next_element::<IgnoredAny>()?.is_some() {
                    return Err(serde::de::Error::invalid_length(3, &Parts));
                }
                // GPT-2's stand-in for the blank, which would end the part.
                let plain = |part: String| {
                    if part.contains(' ') {
                        part.replace(' ', "\u{120}")
                    } else {
                        part
                    }
                };
                let (mut merge, right) = (plain(left), plain(right));
                merge.reserve_exact(1 + right.len());
                merge.push(' ');
                merge.push_str(&right);
                Ok(Merge(merge))
            }
        }
        d.deserialize_any(Parts)
    }
}
