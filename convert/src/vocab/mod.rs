//! The vocabulary: from tokenizer.json to `tokenizer.*` keys.

mod pre;
mod special;
mod template;
mod tokenizer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use gguf::{Array, Metadata, Value};
use gguf_models::vocab::PreTokenizer;
use serde_json::Value as Json;

use crate::Result;
use crate::error::Error;
use crate::source::{read_json, read_json_if_there};
pub(crate) use pre::help as pre_help;
use tokenizer::{AddedToken, TokenizerJson};

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// `tokenizer.ggml.token_type` of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum TokenType {
    Normal = 1,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
}

/// What the checkpoint says of its tokenizer, understood before any weight is looked at.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    tokenizer: TokenizerJson,
    config: Json,
    pre: &'static PreTokenizer,
    /// Value of `tokenizer.ggml.pre`.
    pre_name: String,
    templates: template::Templates,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
    /// The files that were read.
    pub(crate) files: Vec<PathBuf>,
}

impl Vocabulary {
    /// Reads the tokenizer's files and recognises the pre-tokenizer, or takes the one that was asked for.
    ///
    /// # Errors
    /// Files that are missing or malformed, tokenizers that are not byte-level BPE, and patterns that no known
    /// pre-tokenizer has.
    pub(crate) fn read(dir: &Path, pre_name: Option<&str>) -> Result<Self> {
        let path = dir.join(TOKENIZER);
        if !path.exists() {
            return Err(Error::io(
                "open",
                &path,
                "there is none, and no other form of tokenizer is supported",
            ));
        }
        let tokenizer: TokenizerJson = read_json(&path)?;
        let config: Json = read_json_if_there(&dir.join(TOKENIZER_CONFIG))?.unwrap_or_default();
        special::check_types(&config)?;
        let mut notes = Vec::new();
        let pre = pre::recognise(&tokenizer, pre_name, &mut notes)?;
        let templates = template::Templates::read(dir, &config, &mut notes)?;
        let mut files = vec![path, dir.join(TOKENIZER_CONFIG)];
        files.extend(templates.files.iter().cloned());
        let pre_name = pre_name.unwrap_or(pre.name()).to_owned();
        Ok(Self {
            tokenizer,
            config,
            pre,
            pre_name,
            templates,
            notes,
            files,
        })
    }

    /// Appends the `tokenizer.*` keys in the order of the reference converter. `n_rows` is the number of rows
    /// of the embedding: ids that no token has become unused placeholders.
    ///
    /// # Errors
    /// Ids at or beyond `n_rows`, two tokens with one id, one text with two ids, and merges of no tokens.
    pub(crate) fn metadata(
        self,
        model_config: &Json,
        n_rows: u64,
        out: &mut Metadata,
    ) -> Result<Vec<String>> {
        let mut notes = self.notes;
        let (tokens, types) = tokens(&self.tokenizer, n_rows)?;
        check_merges(&self.tokenizer.model.merges, &tokens)?;
        let specials = special::ids(&self.tokenizer, &self.config, model_config, n_rows, &mut notes)?;
        let added = special::added(&self.tokenizer, &self.config, self.pre);
        out.set("tokenizer.ggml.model", Value::String("gpt2".to_owned()));
        out.set("tokenizer.ggml.pre", Value::String(self.pre_name));
        out.set("tokenizer.ggml.tokens", Value::from(tokens));
        out.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
        out.set("tokenizer.ggml.merges", Value::from(self.tokenizer.model.merges));
        for (key, id) in specials {
            out.set(format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
        }
        for (kind, flag) in added {
            out.set(format!("tokenizer.ggml.add_{kind}_token"), Value::Bool(flag));
        }
        self.templates.write(out);
        Ok(notes)
    }
}

/// The tokens by id, and their types.
fn tokens(tokenizer: &TokenizerJson, n_rows: u64) -> Result<(Vec<String>, Vec<i32>)> {
    let mut slots: Vec<Option<(&str, TokenType)>> = vec![None; usize::try_from(n_rows).unwrap_or(0)];
    let normal = tokenizer
        .model
        .vocab
        .iter()
        .map(|(text, id)| (text.as_str(), *id, TokenType::Normal));
    for (text, id, kind) in normal {
        place(&mut slots, text, id, kind)?;
    }
    for token in &tokenizer.added_tokens {
        place(&mut slots, &token.content, token.id, added_type(token))?;
    }
    let mut tokens = Vec::with_capacity(slots.len());
    let mut types = Vec::with_capacity(slots.len());
    for (id, slot) in slots.into_iter().enumerate() {
        let (text, kind) = match slot {
            // SentencePiece's blank has no meaning in text that users define.
            Some((text, TokenType::UserDefined)) => (text.replace('\u{2581}', " "), TokenType::UserDefined),
            Some((text, kind)) => (text.to_owned(), kind),
            None => (format!("[PAD{id}]"), TokenType::Unused),
        };
        tokens.push(text);
        types.push(kind as i32);
    }
    check_unique(&tokens)?;
    Ok((tokens, types))
}

fn place<'a>(
    slots: &mut [Option<(&'a str, TokenType)>],
    text: &'a str,
    id: u64,
    kind: TokenType,
) -> Result<()> {
    let n_rows = slots.len();
    let slot = usize::try_from(id)
        .ok()
        .and_then(|id| slots.get_mut(id))
        .ok_or_else(|| {
            let object = format!("{TOKENIZER}: id of token `{}`", text.escape_debug());
            Error::mismatch(object, format!("below the {n_rows} rows of the embedding"), id)
        })?;
    match slot {
        Some((other, _)) if *other != text => {
            let object = format!("{TOKENIZER}: id {id}");
            let found = format!("`{}` and `{}`", other.escape_debug(), text.escape_debug());
            Err(Error::mismatch(object, "one token", found))
        }
        _ => {
            *slot = Some((text, kind));
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
fn check_unique(tokens: &[String]) -> Result<()> {
    let mut first = HashMap::with_capacity(tokens.len());
    for (id, text) in tokens.iter().enumerate() {
        if let Some(other) = first.insert(text.as_str(), id) {
            let object = format!("{TOKENIZER}: token `{}`", text.escape_debug());
            return Err(Error::mismatch(object, "one id", format!("{other} and {id}")));
        }
    }
    Ok(())
}

fn check_merges(merges: &[String], tokens: &[String]) -> Result<()> {
    let known: std::collections::HashSet<&str> = tokens.iter().map(String::as_str).collect();
    for merge in merges {
        // A part is at least one byte, so the first blank that can divide is at 1.
        let blank = merge.bytes().skip(1).position(|b| b == b' ').map(|at| at + 1);
        let parts = blank.map(|at| merge.split_at(at));
        let sound = parts.is_some_and(|(left, right)| {
            let right = &right[1..];
            known.contains(left) && known.contains(right) && known.contains(format!("{left}{right}").as_str())
        });
        if !sound {
            let object = format!("{TOKENIZER}: merge `{}`", merge.escape_debug());
            return Err(Error::mismatch(object, "two tokens that make a token", "others"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
