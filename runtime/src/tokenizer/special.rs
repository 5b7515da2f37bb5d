//! Tokens that are found in a text by their own text, before it is cut into words.

use crate::{Error, Result};

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

/// Texts that end or structure a conversation and are control tokens whatever the file calls them.
const FORCED_CONTROL: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
    "<|eom_id|>",
    "<|fim_prefix|>",
    "<fim_prefix>",
    "<fim-prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|fim_suffix|>",
    "<fim_suffix>",
    "<fim-suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|fim_middle|>",
    "<fim_middle>",
    "<fim-middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|fim_pad|>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<|file_sep|>",
];

/// The kind of each token; all are normal in a file that does not say.
pub(super) fn kinds(tokens: &[String], numbers: Option<Vec<i64>>) -> Result<Vec<Kind>> {
    let numbers = numbers.unwrap_or_else(|| vec![1; tokens.len()]);
    if numbers.len() != tokens.len() {
        return Err(Error::Vocabulary(
            format!(
                "expected as many token types as tokens, {}, found {}",
                tokens.len(),
                numbers.len()
            )
            .into(),
        ));
    }
    let kind = |(text, number): (&String, i64)| match number {
        _ if FORCED_CONTROL.contains(&text.as_str()) => Kind::Control,
        2 => Kind::Unknown,
        3 if text.contains("unused") => Kind::Unused,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        _ => Kind::Normal,
    };
    Ok(tokens.iter().zip(numbers).map(kind).collect())
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
    specials: Vec<(String, u32, bool)>,
}

impl Partition {
    pub(super) fn new(tokens: &[String], kinds: &[Kind]) -> Self {
        let all = tokens.iter().zip(0u32..).zip(kinds);
        let mut specials: Vec<_> = all
            .filter(|(_, kind)| matches!(kind, Kind::Control | Kind::UserDefined | Kind::Unknown))
            .map(|((text, id), &kind)| (text.clone(), id, kind == Kind::UserDefined))
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

    fn partition() -> Partition {
        let tokens = ["a", "<x>", "<xy>", "bb<x", "!"].map(str::to_owned);
        let kinds = kinds(&tokens, Some(vec![1, 3, 4, 4, 4])).unwrap();
        Partition::new(&tokens, &kinds)
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
    fn kinds_are_checked_and_forced() {
        let tokens = ["<|im_end|>", "<|unused_1|>", "x"].map(str::to_owned);
        let found = kinds(&tokens, Some(vec![4, 3, 1])).unwrap();
        assert_eq!(found, [Kind::Control, Kind::Unused, Kind::Normal]);
        let e = kinds(&tokens, Some(vec![1])).unwrap_err().to_string();
        assert!(e.contains("tokens, 3, found 1"), "{e}");
    }
}
