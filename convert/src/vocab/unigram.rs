//! Unigram from tokenizer.json.

use super::content::{Content, Family, OwnIds};
use super::spm::{Blanks, byte, merge_added};
use super::token::{Token, TokenType};
use super::tokenizer::{TokenizerJson, Vocab};
use super::{TOKENIZER, base64};
use crate::Result;
use crate::error::Error;

pub(super) fn from_json(tokenizer: TokenizerJson, notes: &mut Vec<String>) -> Result<Content> {
    let blanks = Blanks::of(&tokenizer);
    blanks.check("Unigram", notes)?;
    let charsmap = blanks.charsmap.as_deref().unwrap_or_default();
    let charsmap = base64::decode(charsmap).ok_or_else(|| {
        let object = format!("{TOKENIZER} `precompiled_charsmap`");
        Error::mismatch(object, "base64", "other characters")
    })?;
    let TokenizerJson {
        added_tokens, model, ..
    } = tokenizer;
    let Vocab::Scores(vocab) = model.vocab else {
        let object = format!("{TOKENIZER} `vocab` of a Unigram model");
        return Err(Error::mismatch(
            object,
            "a list of tokens and scores",
            "an object",
        ));
    };
    let mut tokens: Vec<Token> = vocab
        .into_iter()
        .zip(0u64..)
        .map(|((text, score), id)| {
            let kind = if Some(id) == model.unk_id {
                TokenType::Unknown
            } else if model.byte_fallback == Some(true) && byte(&text).is_some() {
                TokenType::Byte
            } else {
                TokenType::Normal
            };
            Token {
                id,
                text,
                kind,
                score,
            }
        })
        .collect();
    merge_added(&mut tokens, &added_tokens, notes);
    Ok(Content {
        file: TOKENIZER.to_owned(),
        tokens,
        added: added_tokens,
        family: Family::Unigram {
            space_prefix: blanks.prefix,
            remove_extra_whitespaces: blanks.merged,
            charsmap,
        },
        own_ids: OwnIds {
            unk: model.unk_id,
            ..OwnIds::default()
        },
    })
}
