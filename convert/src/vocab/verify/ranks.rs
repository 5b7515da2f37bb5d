//! A tokenizer made of ranks alone: no merges, no byte alphabet.

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
    added: Vec<AddedToken>,
}

impl RankTokenizer {
    pub(super) fn new(ranks: Ranks, added: &[AddedToken], pre: &PreTokenizer) -> Result<Self> {
        let compile = |pattern: &&str| {
            let wrong = |e| Error::mismatch(format!("pattern `{pattern}`"), "a regular expression", e);
            SysRegex::new(pattern).map_err(wrong)
        };
        Ok(Self {
            ranks,
            patterns: pre.patterns.iter().map(compile).collect::<Result<_>>()?,
            added: added.iter().filter(|t| !t.content.is_empty()).cloned().collect(),
        })
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut rest = text;
        while let Some((at, token)) = self.next_added(rest) {
            self.encode_text(&rest[..at], &mut ids)?;
            ids.push(token.id as u32);
            rest = &rest[at + token.content.len()..];
        }
        self.encode_text(rest, &mut ids)?;
        Ok(ids)
    }

    /// The first added token of a text, of those at one place the longest.
    fn next_added(&self, text: &str) -> Option<(usize, &AddedToken)> {
        let found = self
            .added
            .iter()
            .filter_map(|t| Some((text.find(&t.content)?, t)));
        found.min_by_key(|(at, t)| (*at, std::cmp::Reverse(t.content.len())))
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
