//! The vocabulary: from the tokenizer's files to `tokenizer.*` keys.
//!
//! A reader for each form (`bpe`, `spm`, `unigram`, `wordpiece`, `tiktoken`) gives the same `content`: tokens
//! with ids, kinds and scores, and what only its family has. `choose` says which files win. Ids are laid out in
//! `token`, special ones found in `special`, templates in `template`. `verify` compares the written keys with the
//! source's own tokenizer.

mod base64;
mod bpe;
mod choose;
mod content;
mod pre;
mod sentencepiece;
mod special;
mod spm;
mod template;
mod tiktoken;
mod token;
mod tokenizer;
mod unigram;
mod verify;
mod wordpiece;

use std::path::{Path, PathBuf};

use gguf::{Metadata, Value};
use gguf_models::hf;
use serde_json::Value as Json;

use crate::Result;
use crate::source::read_json_if_there;
use content::{Content, Family};
pub(crate) use pre::help as pre_help;
pub(crate) use verify::{SourceTokenizer, verify};

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const ADDED_TOKENS: &str = "added_tokens.json";
const VOCAB: &str = "vocab.json";
const MERGES: &str = "merges.txt";

/// What the checkpoint says of its tokenizer, understood before any weight is looked at.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    content: Content,
    config: Json,
    /// Of tokenizer.json; null without it.
    post_processor: Json,
    templates: template::Templates,
    source: SourceTokenizer,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
    /// The files that were read.
    pub(crate) files: Vec<PathBuf>,
}

impl Vocabulary {
    /// Reads the tokenizer's files and recognises the pre-tokenizer, or takes the one that was asked for.
    ///
    /// # Errors
    /// Files that are missing or malformed, tokenizers that GGUF has no form for, and patterns that no known
    /// pre-tokenizer has.
    pub(crate) fn read(dir: &Path, pre_name: Option<&str>) -> Result<Self> {
        let config: Json = read_json_if_there(&dir.join(TOKENIZER_CONFIG))?.unwrap_or_default();
        special::check_types(&config)?;
        let mut notes = Vec::new();
        let chosen = choose::read(dir, &config, pre_name, &mut notes)?;
        let templates = template::Templates::read(dir, &config, &mut notes)?;
        let mut files = chosen.files;
        files.extend([dir.join(TOKENIZER_CONFIG), dir.join(ADDED_TOKENS)]);
        files.extend(templates.files.iter().cloned());
        Ok(Self {
            content: chosen.content,
            config,
            post_processor: chosen.post_processor,
            templates,
            source: chosen.source,
            notes,
            files,
        })
    }

    /// What was found, for people: the file and the family.
    pub(crate) fn describe(&self) -> String {
        format!("{}: {}", self.content.file, self.content.family.describe())
    }

    /// Tokens that the files list.
    pub(crate) fn n_listed(&self) -> u64 {
        self.content.tokens.len() as u64
    }

    /// One more than the highest id of a token: the rows that an embedding needs at least.
    pub(crate) fn n_tokens(&self) -> u64 {
        self.last().map_or(0, |(_, id)| id.saturating_add(1))
    }

    /// The token with the highest id: its text and the id.
    pub(crate) fn last(&self) -> Option<(&str, u64)> {
        let last = self.content.tokens.iter().max_by_key(|t| t.id)?;
        Some((&last.text, last.id))
    }

    /// The checkpoint's own tokenizer, for [`verify`]. It is built when it is first needed.
    pub(crate) fn source(&self) -> SourceTokenizer {
        self.source.clone()
    }

    /// Appends the `tokenizer.*` keys in the order of the reference converter. `n_rows` is the number of rows
    /// that the output's embedding has: ids that no token has become unused placeholders.
    ///
    /// # Errors
    /// Ids at or beyond `n_rows`, two tokens with one id, one text with two ids.
    pub(crate) fn metadata(
        self,
        model_config: &Json,
        n_rows: u64,
        out: &mut Metadata,
    ) -> Result<Vec<String>> {
        let mut notes = self.notes;
        let Content {
            file,
            mut tokens,
            added,
            family,
            own_ids,
        } = self.content;
        let habits = Habits::of(model_config);
        let finder = special::Finder {
            added: &added,
            tokens: &tokens,
            config: &self.config,
            post_processor: &self.post_processor,
        };
        let is_word_piece = matches!(family, Family::WordPiece { .. });
        let specials = finder.ids(model_config, own_ids, is_word_piece, n_rows, &mut notes)?;
        let flags = finder.flags(family.pre());
        if habits.added_scores && matches!(family, Family::Spm { .. }) {
            tokens.extend(added.iter().map(token::Token::by_flag));
        }
        let space_prefix = match family {
            Family::Spm { space_prefix } => Some(space_prefix),
            _ => None,
        };
        let arrays = token::arrays(&file, tokens, n_rows)?;
        let n_token_types = model_config["type_vocab_size"]
            .as_u64()
            .and_then(|n| u32::try_from(n).ok());
        family.write(arrays, n_token_types, out);
        for (key, id) in specials {
            out.set(format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
        }
        for (kind, flag) in flags {
            out.set(format!("tokenizer.ggml.add_{kind}_token"), Value::Bool(flag));
        }
        self.templates.write(out);
        if let Some(prefix) = space_prefix {
            if prefix && habits.no_space_prefix {
                notes.push(format!(
                    "{file} puts a blank in front of text, models of type `{}` never do: neither does the output",
                    model_config["model_type"].as_str().unwrap_or_default()
                ));
            }
            if !prefix || habits.no_space_prefix {
                out.set("tokenizer.ggml.add_space_prefix", Value::Bool(false));
            }
        }
        Ok(notes)
    }
}

/// What models of some types do with any tokenizer of `SentencePiece`. The reference converter has it so, and
/// the tokenizer's files do not tell these models from others.
#[derive(Debug, Default)]
struct Habits {
    /// Text never gets a blank in front.
    no_space_prefix: bool,
    /// Tokens that are found by their text have the score and kind of added ones wherever they came from.
    added_scores: bool,
}

impl Habits {
    fn of(model_config: &Json) -> Self {
        let kind = hf::lookup(model_config, "model_type")
            .and_then(Json::as_str)
            .unwrap_or_default();
        Self {
            no_space_prefix: kind.starts_with("gemma") || kind.starts_with("ernie4_5"),
            added_scores: kind == "phi3",
        }
    }
}

/// The steps of a normalizer or pre-tokenizer, those inside of sequences too; `list` is what a sequence calls
/// its steps.
fn steps<'a>(step: &'a Json, list: &'static str) -> Box<dyn Iterator<Item = &'a Json> + 'a> {
    match step["type"].as_str() {
        Some("Sequence") => {
            let inside = step[list].as_array().map_or(&[][..], Vec::as_slice);
            Box::new(inside.iter().flat_map(move |step| steps(step, list)))
        }
        Some(_) => Box::new(std::iter::once(step)),
        None => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;
