//! `WordPiece` from tokenizer.json.

use std::collections::HashMap;

use gguf::listed;

use super::content::{Content, Family, OwnIds};
use super::token::{BLANK, Token, TokenType};
use super::tokenizer::TokenizerJson;
use super::{TOKENIZER, steps};
use crate::Result;
use crate::error::quoted;

/// Normalizers that a note names.
const N_SHOWN: usize = 8;

pub(super) fn from_json(tokenizer: TokenizerJson, notes: &mut Vec<String>) -> Result<Content> {
    let kinds: Vec<_> = steps(&tokenizer.normalizer, "normalizers")
        .map(|step| step["type"].as_str().unwrap_or("none"))
        .collect();
    let bert = steps(&tokenizer.normalizer, "normalizers").find(|step| step["type"] == "BertNormalizer");
    if kinds != ["BertNormalizer"] {
        let kinds: Vec<String> = kinds.iter().copied().map(quoted).collect();
        let found = if kinds.is_empty() {
            "`none`".to_owned()
        } else {
            listed(&kinds, N_SHOWN, ", ")
        };
        notes.push(format!(
            "{TOKENIZER} normalizes text with {found}, the output as BERT does"
        ));
    }
    let lowercase =
        bert.is_some_and(|step| step["lowercase"].as_bool().unwrap_or(true)) || kinds.contains(&"Lowercase");
    let strip_accents = bert.map_or(kinds.contains(&"StripAccents"), |step| {
        step["strip_accents"].as_bool().unwrap_or(lowercase)
    });
    let TokenizerJson {
        added_tokens, model, ..
    } = tokenizer;
    let mut vocab = model.vocab.ids(format!("{TOKENIZER} `vocab`"))?;
    vocab.sort_by_key(|&(_, id)| id);
    let inside = model.continuing_subword_prefix.as_deref().unwrap_or("##");
    let listed: HashMap<_, _> = added_tokens
        .iter()
        .map(|t| ((t.id, t.content.as_str()), t))
        .collect();
    let mut own_ids = OwnIds::default();
    let mut tokens = Vec::with_capacity(vocab.len());
    for (text, id) in vocab {
        let added = listed.get(&(id, text.as_str())).copied();
        let is_unknown = Some(&text) == model.unk_token.as_ref();
        if is_unknown {
            own_ids.unk = Some(id);
        }
        let framed = text.starts_with('[') && text.ends_with(']');
        let (text, kind) = match (added, text.strip_prefix(inside).filter(|rest| !rest.is_empty())) {
            (Some(token), _) => {
                tokens.push(Token::added(token, 0.0));
                continue;
            }
            (None, _) if framed => (
                text,
                if is_unknown {
                    TokenType::Unknown
                } else {
                    TokenType::Control
                },
            ),
            (None, Some(rest)) => (rest.to_owned(), TokenType::Normal),
            (None, None) => (format!("{BLANK}{text}"), TokenType::Normal),
        };
        tokens.push(Token {
            kind,
            ..Token::normal(text, id)
        });
    }
    let n = tokens.len();
    let is_new = |id: u64| tokens[..n].binary_search_by_key(&id, |t| t.id).is_err();
    let more: Vec<_> = added_tokens
        .iter()
        .filter(|t| is_new(t.id))
        .map(|t| Token::added(t, 0.0))
        .collect();
    tokens.extend(more);
    Ok(Content {
        file: TOKENIZER.to_owned(),
        tokens,
        added: added_tokens,
        family: Family::WordPiece {
            lowercase,
            strip_accents,
        },
        own_ids,
    })
}
