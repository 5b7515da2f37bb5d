//! Tokens, and their layout by ids.

use foldhash::{HashMap, HashMapExt};

use super::tokenizer::AddedToken;
use crate::Result;
use crate::error::Error;

/// The sign that stands for a blank in tokens of all families but byte-level BPE.
pub(super) const BLANK: char = '\u{2581}';

/// The same.
pub(super) const BLANK_TEXT: &str = "\u{2581}";

/// `tokenizer.ggml.token_type` of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum TokenType {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

impl TokenType {
    pub(super) fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

/// A token of a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) id: u64,
    pub(super) text: String,
    pub(super) kind: TokenType,
    /// Order of merging, or logarithm of the probability; 0 in families without scores.
    pub(super) score: f32,
}

impl Token {
    pub(super) fn normal(text: String, id: u64) -> Self {
        Self {
            id,
            text,
            kind: TokenType::Normal,
            score: 0.0,
        }
    }

    /// A token that is not made of others.
    pub(super) fn added(token: &AddedToken, score: f32) -> Self {
        Self {
            id: token.id,
            text: token.content.clone(),
            kind: added_type(token),
            score,
        }
    }

    /// The same by its flag alone, whatever its text looks like.
    pub(super) fn by_flag(token: &AddedToken) -> Self {
        let kind = if token.special {
            TokenType::Control
        } else {
            TokenType::UserDefined
        };
        Self {
            kind,
            ..Self::added(token, ADDED_SCORE)
        }
    }
}

/// The score of tokens that are found by their text.
pub(super) const ADDED_SCORE: f32 = -1000.0;

/// The score of a placeholder.
const HOLE_SCORE: f32 = -10000.0;

/// The arrays of the output.
#[derive(Debug, Default)]
pub(super) struct Arrays {
    pub(super) tokens: Vec<String>,
    pub(super) types: Vec<i32>,
    pub(super) scores: Vec<f32>,
}

/// The tokens by id, `n_rows` of them: ids that no token has become placeholders. `file` is where they are from.
pub(super) fn arrays(file: &str, tokens: Vec<Token>, n_rows: u64) -> Result<Arrays> {
    let mut slots: Vec<Option<Token>> = Vec::new();
    for token in tokens {
        place(file, &mut slots, token, n_rows)?;
    }
    slots.resize_with(usize::try_from(n_rows).unwrap_or(0), || None);
    let mut arrays = Arrays::default();
    for (id, slot) in slots.into_iter().enumerate() {
        let (text, kind, score) = match slot {
            // Text that users define is looked for in the text itself, where the sign has no meaning.
            Some(t) if t.kind == TokenType::UserDefined => (t.text.replace(BLANK, " "), t.kind, t.score),
            Some(t) => (t.text, t.kind, t.score),
            None => (format!("[PAD{id}]"), TokenType::Unused, HOLE_SCORE),
        };
        arrays.tokens.push(text);
        arrays.types.push(kind as i32);
        arrays.scores.push(score);
    }
    check_unique(file, &arrays.tokens)?;
    Ok(arrays)
}

fn place(file: &str, slots: &mut Vec<Option<Token>>, token: Token, n_rows: u64) -> Result<()> {
    if token.id >= n_rows {
        let object = format!("{file}: id of token `{}`", token.text.escape_debug());
        let expected = format!("below the {n_rows} rows of the embedding");
        return Err(Error::mismatch(object, expected, token.id));
    }
    // Below the number of rows, which the weights have.
    let id = token.id as usize;
    if slots.len() <= id {
        slots.resize_with(id + 1, || None);
    }
    match &slots[id] {
        Some(other) if other.text != token.text => {
            let object = format!("{file}: id {id}");
            let found = format!(
                "`{}` and `{}`",
                other.text.escape_debug(),
                token.text.escape_debug()
            );
            Err(Error::mismatch(object, "one token", found))
        }
        _ => {
            slots[id] = Some(token);
            Ok(())
        }
    }
}

/// Special tokens, and those that look like it, never stand for ordinary text.
fn added_type(token: &AddedToken) -> TokenType {
    let text = token.content.as_str();
    let framed = |start: &str, end: &str| text.starts_with(start) && text.ends_with(end);
    let looks_special = framed("<|", "|>")
        || framed("<｜", "｜>")
        || framed("<unused", ">")
        || ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].contains(&text);
    if token.special || looks_special {
        TokenType::Control
    } else {
        TokenType::UserDefined
    }
}

/// Loaders refuse a vocabulary with a text that two ids have.
fn check_unique(file: &str, tokens: &[String]) -> Result<()> {
    let mut first = HashMap::with_capacity(tokens.len());
    for (id, text) in tokens.iter().enumerate() {
        if let Some(other) = first.insert(text.as_str(), id) {
            let object = format!("{file}: token `{}`", text.escape_debug());
            return Err(Error::mismatch(object, "one id", format!("{other} and {id}")));
        }
    }
    Ok(())
}
