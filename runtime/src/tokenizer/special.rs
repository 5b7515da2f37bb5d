//! Tokens that are found in a text by their own text, before it is cut into words.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use super::automaton::{Automaton, Match};
use super::roles;
use super::vocabulary::Vocabulary;
use crate::Result;

/// What a token is, from `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A piece of text in the byte alphabet.
    Normal,
    /// The token of what has no token.
    Unknown,
    /// A mark that text never means.
    Control,
    /// A piece of text that is always a token of its own.
    UserDefined,
    /// A place holder.
    Unused,
    /// A raw byte.
    Byte,
}

/// The kind of each token; all are normal in a file that does not say. `numbers` are as many as tokens.
pub(super) fn kinds(tokens: &[Arc<str>], numbers: Option<Vec<i64>>) -> Vec<Kind> {
    let numbers = numbers.unwrap_or_else(|| vec![1; tokens.len()]);
    let kind = |(text, number): (&Arc<str>, i64)| match number {
        _ if roles::ends_turns(text) => Kind::Control,
        2 => Kind::Unknown,
        3 if text.contains("unused") => Kind::Unused,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        _ => Kind::Normal,
    };
    tokens.iter().zip(numbers).map(kind).collect()
}

/// A stretch of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// To be cut into words.
    Text(&'a str),
    /// A special token.
    Token(u32),
}

/// Parts texts at special tokens.
#[derive(Debug)]
pub(super) struct Partition {
    /// The tokens that are recognised in any text.
    always: Automaton,
    /// These and those that are on request.
    all: Automaton,
}

/// A token that may be taken. The order is that of taking: the longest, of several with one length that of the lowest id,
/// and the leftmost.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    found: Match,
    /// Where it ends in the text.
    end: u32,
}

impl Candidate {
    fn order(&self) -> (u32, Reverse<u32>, Reverse<u32>) {
        (self.found.len, Reverse(self.found.id), Reverse(self.end))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl Partition {
    pub(super) fn new(vocabulary: &Vocabulary) -> Result<Self> {
        let always = |kind| kind == Kind::UserDefined;
        Ok(Self {
            always: vocabulary.automaton(always)?,
            all: vocabulary
                .automaton(|kind| always(kind) || matches!(kind, Kind::Control | Kind::Unknown))?,
        })
    }

    /// Parts a text: at every occurrence of the longest token, then what is left at the next, and so on. A text has less
    /// than 4 GiB.
    ///
    /// Of each place only the longest token that ends there and does not reach into one that was taken is looked at, so
    /// that time does not depend on how many tokens there are.
    pub(super) fn split<'a>(&self, text: &'a str, parse_special: bool) -> Vec<Piece<'a>> {
        let automaton = if parse_special { &self.all } else { &self.always };
        let longest = automaton.longest(text);
        let mut candidates: BinaryHeap<_> = longest.map(|(end, found)| Candidate { found, end }).collect();
        // Ends and ids of those taken, by their starts.
        let mut taken: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        while let Some(Candidate { found, end }) = candidates.pop() {
            // Behind the last that is taken and starts in front of this place.
            let free = taken.range(..end).next_back().map_or(0, |(_, &(end, _))| end);
            if free <= end - found.len {
                taken.insert(end - found.len, (end, found.id));
            } else if free < end {
                let found = automaton.shorter(found, end - free);
                candidates.extend(found.map(|found| Candidate { found, end }));
            }
        }
        pieces(text, taken)
    }
}

/// The tokens taken and the stretches between them.
fn pieces(text: &str, taken: BTreeMap<u32, (u32, u32)>) -> Vec<Piece<'_>> {
    let mut out = Vec::with_capacity(2 * taken.len() + 1);
    let mut at = 0;
    for (start, (end, id)) in taken {
        if start as usize > at {
            out.push(Piece::Text(&text[at..start as usize]));
        }
        out.push(Piece::Token(id));
        at = end as usize;
    }
    if at < text.len() {
        out.push(Piece::Text(&text[at..]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use gguf::{Array, Metadata, Value};

    fn vocabulary(tokens: &[&str], kinds: &[i32]) -> Vocabulary {
        let mut metadata = Metadata::new();
        let tokens: Vec<String> = tokens.iter().map(|&t| t.to_owned()).collect();
        metadata.set("tokenizer.ggml.tokens", Value::from(tokens));
        let kinds = Value::Array(Array::I32(kinds.to_vec()));
        metadata.set("tokenizer.ggml.token_type", kinds);
        Vocabulary::from_metadata(&metadata).unwrap()
    }

    fn partition() -> Partition {
        let tokens = ["a", "<x>", "<xy>", "bb<x", "!"];
        Partition::new(&vocabulary(&tokens, &[1, 3, 4, 4, 4])).unwrap()
    }

    #[test]
    fn control_tokens_only_on_request() {
        let p = partition();
        assert_eq!(p.split("a<x>", false), [Piece::Text("a<x>")]);
        assert_eq!(p.split("a<x>", true), [Piece::Text("a"), Piece::Token(1)]);
        assert_eq!(p.split("", true), []);
        assert_eq!(p.split("!!", false), [Piece::Token(4), Piece::Token(4)]);
    }

    #[test]
    fn longer_tokens_come_first_even_where_they_start_later() {
        let p = partition();
        assert_eq!(p.split("b<xy>", true), [Piece::Text("b"), Piece::Token(2)]);
        assert_eq!(p.split("bb<x>", true), [Piece::Token(3), Piece::Text(">")]);
    }

    #[test]
    fn kinds_are_forced() {
        let tokens = ["<|im_end|>", "<|unused_1|>", "x"];
        let found = vocabulary(&tokens, &[4, 3, 1]).kinds;
        assert_eq!(found, [Kind::Control, Kind::Unused, Kind::Normal]);
    }

    /// Tokens one by one, as the reference goes through them.
    fn split_one_by_one<'a>(vocabulary: &Vocabulary, text: &'a str, parse_special: bool) -> Vec<Piece<'a>> {
        let wanted = |kind| match kind {
            Kind::UserDefined => true,
            Kind::Control | Kind::Unknown => parse_special,
            _ => false,
        };
        let mut specials: Vec<(&str, u32)> = vocabulary.of_kind(wanted).collect();
        specials.sort_by_key(|(text, _)| Reverse(text.len()));
        let mut pieces = vec![Piece::Text(text)];
        for (special, id) in specials {
            let mut finer = Vec::new();
            for piece in pieces {
                let Piece::Text(text) = piece else {
                    finer.push(piece);
                    continue;
                };
                let mut end = 0;
                for (at, found) in text.match_indices(special) {
                    finer.extend([Piece::Text(&text[end..at]), Piece::Token(id)]);
                    end = at + found.len();
                }
                finer.push(Piece::Text(&text[end..]));
            }
            pieces = finer;
        }
        pieces.retain(|piece| *piece != Piece::Text(""));
        pieces
    }

    #[test]
    fn tokens_are_those_that_going_through_them_one_by_one_finds() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = move |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as usize % n
        };
        for round in 0..1500 {
            // Few letters, so that tokens overlap and lie in each other.
            let letters = &["a", "b", "é", "<", "\u{20ac}"][..2 + round % 4];
            let mut word = |most: usize| -> String {
                let n = 1 + next(most);
                (0..n).map(|_| letters[next(letters.len())]).collect()
            };
            let mut tokens: Vec<String> = (0..=round % 12).map(|_| word(1 + round % 7)).collect();
            tokens.sort_by_key(|token| (token.len() * 7 + round) % 5);
            let mut seen = std::collections::HashSet::new();
            tokens.retain(|token| seen.insert(token.clone()));
            let text = word(60);
            let kinds: Vec<i32> = (0..tokens.len())
                .map(|i| [4, 3, 4, 2, 1][(i + round) % 5])
                .collect();
            let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
            let vocabulary = vocabulary(&tokens, &kinds);
            let partition = Partition::new(&vocabulary).unwrap();
            for parse_special in [false, true] {
                assert_eq!(
                    partition.split(&text, parse_special),
                    split_one_by_one(&vocabulary, &text, parse_special),
                    "{text:?} at {tokens:?} of {kinds:?}"
                );
            }
        }
    }

    #[test]
    fn many_tokens_cost_no_more_than_one() {
        // A search for each would read 20,000 times 200 KB.
        let letters: Vec<char> = ('a'..='z').chain('A'..='Z').collect();
        let triple = |i: usize| -> String { [i, i / 52, i / 2704].map(|i| letters[i % 52]).iter().collect() };
        let tokens: Vec<String> = (0..20_000).map(triple).collect();
        let kinds = vec![4; tokens.len()];
        let texts: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let p = Partition::new(&vocabulary(&texts, &kinds)).unwrap();
        let text: String = (0..200_000).map(|i| letters[(i * i + i / 7) % 52]).collect();
        let pieces = p.split(&text, false);
        let joined: String = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text,
                Piece::Token(id) => texts[*id as usize],
            })
            .collect();
        assert!(joined == text && pieces.len() > 10_000, "{} pieces", pieces.len());
    }

    #[test]
    fn tokens_that_lie_in_each_other_cost_no_more_either() {
        // Of each place of the text 1000 tokens end, of which all but one reach into others or are shorter.
        let tokens: Vec<String> = (1..=1000).map(|n| "a".repeat(n)).collect();
        let texts: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let p = Partition::new(&vocabulary(&texts, &[4; 1000])).unwrap();
        let text = "a".repeat(300_500);
        let pieces = p.split(&text, false);
        assert_eq!(pieces.len(), 301);
        assert!(pieces[..300].iter().all(|piece| *piece == Piece::Token(999)));
        assert_eq!(pieces[300], Piece::Token(499));
    }
}
