//! A tokenizer made of ranks alone: no merges, no byte alphabet.

use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt};
use gguf_models::vocab::PreTokenizer;
use tokenizers::utils::SysRegex;

use crate::Result;
use crate::error::Error;
use crate::vocab::tiktoken::{self, Ranks};
use crate::vocab::tokenizer::AddedToken;
use tokenizers::pattern::Pattern as _;

pub(super) struct RankTokenizer {
    ranks: Ranks,
    patterns: Vec<SysRegex>,
    /// Ids of added tokens by their text.
    added: HashMap<String, u32>,
    /// The lengths that those have in bytes, long ones first.
    lengths: Vec<usize>,
}

impl RankTokenizer {
    pub(super) fn new(ranks: Ranks, added: &[AddedToken], pre: &PreTokenizer) -> Result<Self> {
        let compile = |pattern: &&str| {
            let wrong = |e| Error::mismatch(format!("pattern `{pattern}`"), "a regular expression", e);
            SysRegex::new(pattern).map_err(wrong)
        };
        let mut ids = HashMap::with_capacity(added.len());
        for token in added.iter().filter(|t| !t.content.is_empty()) {
            ids.entry(token.content.clone()).or_insert(token.id as u32);
        }
        let lengths: BTreeSet<usize> = ids.keys().map(String::len).collect();
        Ok(Self {
            ranks,
            patterns: pre.patterns.iter().map(compile).collect::<Result<_>>()?,
            added: ids,
            lengths: lengths.into_iter().rev().collect(),
        })
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut rest = text;
        while let Some((at, n, id)) = self.next_added(rest) {
            self.encode_text(&rest[..at], &mut ids)?;
            ids.push(id);
            rest = &rest[at + n..];
        }
        self.encode_text(rest, &mut ids)?;
        Ok(ids)
    }

    /// The first added token of a text, of those at one place the longest: where it is, its length and its id.
    fn next_added(&self, text: &str) -> Option<(usize, usize, u32)> {
        text.char_indices().find_map(|(at, _)| {
            let rest = &text[at..];
            self.lengths
                .iter()
                .find_map(|&n| Some((at, n, *self.added.get(rest.get(..n)?)?)))
        })
    }

    fn encode_text(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let mut words = vec![text];
        for pattern in &self.patterns {
            let mut finer = Vec::new();
            for word in words {
                let pieces = pattern
                    .find_matches(word)
                    .map_err(|e| Error::mismatch(format!("text `{}`", super::shown(word)), "words", e))?;
                finer.extend(pieces.into_iter().map(|((from, to), _)| &word[from..to]));
            }
            words = finer;
        }
        for word in words {
            let bytes = word.as_bytes();
            let mut from = 0;
            for to in tiktoken::merge(bytes, &self.ranks, u32::MAX) {
                ids.extend(self.ranks.get(&bytes[from..to]));
                from = to;
            }
        }
        Ok(())
    }
}
