//! How long the tokens of a vocabulary may be that the `tokenizers` library runs.
//!
//! It keeps some hundred bytes for each byte of a Unigram token, in nodes of which each drops the next one, copies what a
//! token could begin with at every place, and looks at every part of a long word: what it takes grows with the square or
//! the cube of lengths that no tokenizer in use has.

use serde_json::Value as Json;

use crate::vocab::tokenizer::{AddedToken, Vocab};

/// Bytes of a token. The longest in use are 128 blanks, each a letter of two bytes.
const MAX_TOKEN: usize = 512;

/// Bytes of a Unigram token: those of `SentencePiece` have 16 characters at most unless asked for more.
const MAX_UNIGRAM_TOKEN: usize = 128;

/// Bytes of all Unigram tokens: 250,000 have two million.
const MAX_UNIGRAM: usize = 4 << 20;

/// Characters of a word of `WordPiece`; BERT has 100.
const MAX_WORD: u64 = 200;

/// Added tokens over [`LONG_ADDED`] bytes may have so many bytes together. Of shorter ones there may be any number, and
/// of long ones there are few.
const MAX_LONG_ADDED: usize = 64 << 10;
const LONG_ADDED: usize = 64;

/// What tells how long words are, in the model of a tokenizer.json.
#[derive(Debug, Default, serde::Deserialize)]
pub(super) struct Model {
    #[serde(default)]
    vocab: Vocab,
    #[serde(default)]
    max_input_chars_per_word: Json,
    /// Put in front of, and behind, parts of words that are looked for.
    #[serde(default)]
    continuing_subword_prefix: Json,
    #[serde(default)]
    end_of_word_suffix: Json,
}

impl Model {
    /// # Errors
    /// In words, what is too long.
    pub(super) fn check(&self) -> Result<(), String> {
        let affixes = [&self.continuing_subword_prefix, &self.end_of_word_suffix];
        check_tokens(affixes.into_iter().filter_map(Json::as_str))?;
        if let Some(n) = self.max_input_chars_per_word.as_u64().filter(|&n| n > MAX_WORD) {
            return Err(format!(
                "expected words of at most {MAX_WORD} characters, found {n}"
            ));
        }
        match &self.vocab {
            Vocab::Ids(tokens) => check_tokens(tokens.iter().map(|(text, _)| text.as_str())),
            Vocab::Scores(tokens) => check_unigram(tokens.iter().map(|(text, _)| text.as_str())),
        }
    }
}

/// Checks tokens of any model but Unigram.
///
/// # Errors
/// In words, what is too long.
pub(super) fn check_tokens<'a>(tokens: impl Iterator<Item = &'a str>) -> Result<(), String> {
    check(tokens, MAX_TOKEN).map(drop)
}

/// Checks the tokens of a Unigram model.
///
/// # Errors
/// In words, what is too long.
pub(super) fn check_unigram<'a>(tokens: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let all = check(tokens, MAX_UNIGRAM_TOKEN)?;
    if all > MAX_UNIGRAM {
        return Err(format!(
            "expected at most {MAX_UNIGRAM} bytes of tokens, found {all}"
        ));
    }
    Ok(())
}

/// Checks tokens that are found by their text.
///
/// # Errors
/// In words, what is too long.
pub(super) fn check_added(tokens: &[AddedToken]) -> Result<(), String> {
    check_tokens(tokens.iter().map(|token| token.content.as_str()))?;
    let long = tokens.iter().map(|t| t.content.len()).filter(|&n| n > LONG_ADDED);
    let all: usize = long.sum();
    if all > MAX_LONG_ADDED {
        return Err(format!(
            "expected at most {MAX_LONG_ADDED} bytes of added tokens that are longer than {LONG_ADDED}, found {all}"
        ));
    }
    Ok(())
}

/// The bytes of all tokens.
fn check<'a>(tokens: impl Iterator<Item = &'a str>, most: usize) -> Result<usize, String> {
    let mut all = 0;
    for n in tokens.map(str::len) {
        if n > most {
            return Err(format!(
                "expected tokens of at most {most} bytes, found one of {n}"
            ));
        }
        all += n;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn model(json: Json) -> Result<(), String> {
        serde_json::from_value::<Model>(json).expect("a model").check()
    }

    #[test]
    fn models_with_long_tokens_are_not_run() {
        let text = |n: usize| "a".repeat(n);
        for (json, n) in [
            (
                json!({"vocab": {text(512): 0}, "continuing_subword_prefix": "##"}),
                "",
            ),
            (json!({"vocab": {text(513): 0}}), "513"),
            (json!({"vocab": [[text(128), 0.0]]}), ""),
            (json!({"vocab": [["<unk>", 0.0], [text(129), 0.0]]}), "129"),
            (
                json!({"vocab": vec![json!([text(128), 0.0]); (4 << 13) + 1]}),
                "4194432",
            ),
            (json!({"continuing_subword_prefix": text(1000)}), "1000"),
            (json!({"end_of_word_suffix": text(1000)}), "1000"),
            (json!({"vocab": {"a": 0}, "max_input_chars_per_word": 100}), ""),
            (json!({"vocab": {"a": 0}, "max_input_chars_per_word": 201}), "201"),
        ] {
            match model(json) {
                Ok(()) => assert!(n.is_empty(), "{n}"),
                Err(e) => assert!(!n.is_empty() && e.contains(n), "{e}"),
            }
        }
    }

    #[test]
    fn a_few_added_tokens_may_be_long() {
        let tokens = |n: usize, length: usize| -> Vec<AddedToken> {
            let token = |id| AddedToken {
                id,
                content: "a".repeat(length),
                special: false,
            };
            (0..n as u64).map(token).collect()
        };
        for (n, length) in [(100_000, 64), (128, 512)] {
            assert_eq!(check_added(&tokens(n, length)), Ok(()));
        }
        for (n, length, word) in [(1, 513, "513"), (129, 512, "66048"), (2000, 65, "130000")] {
            let refused = check_added(&tokens(n, length)).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }
}
