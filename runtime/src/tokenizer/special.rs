//! Tokens that are found in a text by their own text, before it is cut into words.

use std::sync::Arc;

use super::roles;
use super::vocabulary::Vocabulary;

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
    /// Text, id and whether it is recognised in any text; longest text first.
    specials: Vec<(Arc<str>, u32, bool)>,
}

impl Partition {
    pub(super) fn new(vocabulary: &Vocabulary) -> Self {
        let tokens = vocabulary.texts.iter().zip(0u32..).zip(&vocabulary.kinds);
        let mut specials: Vec<_> = tokens
            .filter(|(_, kind)| matches!(kind, Kind::Control | Kind::UserDefined | Kind::Unknown))
            .map(|((text, id), &kind)| (Arc::clone(text), id, kind == Kind::UserDefined))
            .collect();
        specials.sort_by_key(|(text, ..)| std::cmp::Reverse(text.len()));
        Self { specials }
    }

    /// Parts a text: at every occurrence of the longest token, then what is left at the next, and so on.
    pub(super) fn split<'a>(&self, text: &'a str, parse_special: bool) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        let pairs = BytePairs::of(text);
        for (special, id, always) in &self.specials {
            if !(*always || parse_special) || !pairs.may_contain(special) {
                continue;
            }
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                match piece {
                    Piece::Token(_) => finer.push(piece),
                    Piece::Text(text) => part(text, special, *id, &mut finer),
                }
            }
            pieces = finer;
        }
        pieces
    }
}

fn part<'a>(text: &'a str, special: &str, id: u32, out: &mut Vec<Piece<'a>>) {
    let mut end = 0;
    for (at, found) in text.match_indices(special) {
        if at > end {
            out.push(Piece::Text(&text[end..at]));
        }
        out.push(Piece::Token(id));
        end = at + found.len();
    }
    if text.len() > end {
        out.push(Piece::Text(&text[end..]));
    }
}

/// Which pairs of neighbouring bytes a text has. Vocabularies with thousands of special tokens meet long texts
/// with none of them; this says so without a search for each.
struct BytePairs(Vec<u64>);

impl BytePairs {
    fn of(text: &str) -> Self {
        let mut set = vec![0u64; 1 << 10];
        for pair in text.as_bytes().windows(2) {
            let (word, bit) = Self::place(pair);
            set[word] |= bit;
        }
        Self(set)
    }

    fn place(pair: &[u8]) -> (usize, u64) {
        let n = usize::from(pair[0]) << 8 | usize::from(pair[1]);
        (n >> 6, 1 << (n & 63))
    }

    fn may_contain(&self, special: &str) -> bool {
        special.as_bytes().windows(2).all(|pair| {
            let (word, bit) = Self::place(pair);
            self.0[word] & bit != 0
        })
    }
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
        Partition::new(&vocabulary(&tokens, &[1, 3, 4, 4, 4]))
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
}
