//! SPM: a whole text merged by the scores of its tokens.

use gguf::Metadata;

use super::bytes;
use super::merge::{Merger, NONE};
use super::vocabulary::{self, Vocabulary};
use super::{SPACE, SPACE_TEXT};
use crate::Result;

#[derive(Debug)]
pub(super) struct Spm {
    /// Order in which tokens are made: the higher the score, the lower the rank; the same score, the same rank.
    ranks: Vec<u32>,
    /// The token of each byte.
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
    add_space_prefix: bool,
    /// Bytes of the longest token: longer stretches need no look-up.
    longest: usize,
    /// Whether no token has a space behind anything else, so that no merge reaches over the start of a word.
    words_are_apart: bool,
}

impl Spm {
    pub(super) fn new(
        metadata: &Metadata,
        vocabulary: &Vocabulary,
        unknown: Option<u32>,
        add_space_prefix: bool,
    ) -> Result<Self> {
        let scores = vocabulary::scores(metadata, vocabulary.len())?;
        Ok(Self {
            ranks: scores.into_iter().map(rank).collect(),
            bytes: bytes::tokens(vocabulary),
            unknown,
            add_space_prefix,
            longest: vocabulary.texts.iter().map(|t| t.len()).max().unwrap_or(0),
            words_are_apart: vocabulary.texts.iter().all(|t| word_starts(t).next().is_none()),
        })
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, text: &str, vocabulary: &Vocabulary, out: &mut Vec<u32>) {
        let prefix = if self.add_space_prefix { SPACE_TEXT } else { "" };
        let text = format!("{prefix}{}", text.replace(' ', SPACE_TEXT));
        let mut merger = Merger::default();
        let mut start = 0;
        if self.words_are_apart {
            for end in word_starts(&text) {
                self.encode_part(&text[start..end], vocabulary, &mut merger, out);
                start = end;
            }
        }
        self.encode_part(&text[start..], vocabulary, &mut merger, out);
    }

    fn encode_part(&self, text: &str, vocabulary: &Vocabulary, merger: &mut Merger, out: &mut Vec<u32>) {
        merger.clear();
        for c in text.chars() {
            merger.push(c.len_utf8() as u32, NONE);
        }
        merger.run(|left, right| {
            let both = left.range().start..right.range().end;
            let id = Some(both)
                .filter(|r| r.len() <= self.longest)
                .and_then(|r| vocabulary.id(&text[r]))?;
            Some((self.ranks[id as usize], id))
        });
        for symbol in merger.symbols() {
            let text = &text[symbol.range()];
            let id = Some(symbol.id).filter(|&id| id != NONE);
            if let Some(id) = id.or_else(|| vocabulary.id(text)) {
                out.push(id);
            } else {
                let bytes = text.bytes();
                out.extend(bytes.filter_map(|b| self.bytes[usize::from(b)].or(self.unknown)));
            }
        }
    }
}

/// Numbers that are in the reverse order of scores.
fn rank(score: f32) -> u32 {
    // Adding zero makes one of the two zeros. Then the order of the bits is that of the values, reversed below zero.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 { bits } else { !(bits | 1 << 31) }
}

/// Where a space follows something else.
fn word_starts(text: &str) -> impl Iterator<Item = usize> {
    let mut after_space = true;
    text.char_indices().filter_map(move |(at, c)| {
        let starts = c == SPACE && !after_space;
        after_space = c == SPACE;
        starts.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_reverse_scores() {
        let scores = [f32::MAX, 2.5, 1e-30, 0.0, -1e-30, -1.0, -10000.0, f32::MIN];
        let ranks = scores.map(rank);
        assert!(
            ranks.is_sorted() && ranks.windows(2).all(|w| w[0] != w[1]),
            "{ranks:?}"
        );
        assert_eq!(rank(0.0), rank(-0.0));
    }

    #[test]
    fn words_start_with_their_first_space() {
        assert_eq!(word_starts("▁a▁▁bc▁").collect::<Vec<_>>(), [4, 12]);
        assert_eq!(word_starts("▁▁a").count(), 0);
    }
}
