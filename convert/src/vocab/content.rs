//! What a checkpoint's tokenizer holds, whichever files it came in.

use gguf::{Array, Metadata, Value};
use gguf_models::vocab::PreTokenizer;

use super::token::{Arrays, Token};
use super::tokenizer::AddedToken;

/// How tokens are made, with what only this family has.
#[derive(Debug)]
pub(super) enum Family {
    /// Byte-level BPE.
    Bpe {
        pre: &'static PreTokenizer,
        /// Value of `tokenizer.ggml.pre`.
        pre_name: String,
        merges: Vec<String>,
    },
    /// `SentencePiece` BPE: merged by score.
    Spm {
        /// Whether a blank is put in front of text.
        space_prefix: bool,
    },
    /// `SentencePiece` Unigram.
    Unigram {
        space_prefix: bool,
        remove_extra_whitespaces: bool,
        /// Table of replacements; empty for none.
        charsmap: Vec<u8>,
    },
    /// `WordPiece`.
    WordPiece { lowercase: bool, strip_accents: bool },
}

/// Ids that the tokenizer's own file gives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnIds {
    pub(super) bos: Option<u64>,
    pub(super) eos: Option<u64>,
    pub(super) unk: Option<u64>,
    pub(super) pad: Option<u64>,
}

/// A tokenizer.
#[derive(Debug)]
pub(super) struct Content {
    /// The file that the tokens are from, for messages.
    pub(super) file: String,
    /// Later ones replace earlier ones of the same id and text.
    pub(super) tokens: Vec<Token>,
    /// Tokens that are found by their text.
    pub(super) added: Vec<AddedToken>,
    pub(super) family: Family,
    pub(super) own_ids: OwnIds,
}

impl Family {
    /// What a note calls it.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Bpe { pre_name, .. } => format!("byte-level BPE, pre-tokenizer `{pre_name}`"),
            Self::Spm { .. } => "SentencePiece BPE".to_owned(),
            Self::Unigram { .. } => "SentencePiece Unigram".to_owned(),
            Self::WordPiece { .. } => "WordPiece".to_owned(),
        }
    }

    /// The pre-tokenizer, where the family has one.
    pub(super) fn pre(&self) -> Option<&'static PreTokenizer> {
        match self {
            Self::Bpe { pre, .. } => Some(pre),
            _ => None,
        }
    }

    /// Appends the keys up to the special tokens.
    pub(super) fn write(self, arrays: Arrays, n_token_types: Option<u32>, out: &mut Metadata) {
        let (model, pre, has_scores) = match &self {
            Self::Bpe { pre_name, .. } => ("gpt2", pre_name.as_str(), false),
            Self::Spm { .. } => ("llama", "default", true),
            Self::Unigram { .. } => ("t5", "default", true),
            Self::WordPiece { .. } => ("bert", "default", false),
        };
        if let (Self::WordPiece { .. }, Some(n)) = (&self, n_token_types) {
            out.set("tokenizer.ggml.token_type_count", Value::U32(n));
        }
        out.set("tokenizer.ggml.model", Value::String(model.to_owned()));
        out.set("tokenizer.ggml.pre", Value::String(pre.to_owned()));
        out.set("tokenizer.ggml.tokens", Value::from(arrays.tokens));
        if has_scores {
            out.set("tokenizer.ggml.scores", Value::Array(Array::F32(arrays.scores)));
        }
        out.set(
            "tokenizer.ggml.token_type",
            Value::Array(Array::I32(arrays.types)),
        );
        match self {
            Self::Bpe { merges, .. } => out.set("tokenizer.ggml.merges", Value::from(merges)),
            Self::Spm { .. } => {}
            Self::Unigram {
                space_prefix,
                remove_extra_whitespaces,
                charsmap,
            } => {
                out.set("tokenizer.ggml.add_space_prefix", Value::Bool(space_prefix));
                let remove = Value::Bool(remove_extra_whitespaces);
                out.set("tokenizer.ggml.remove_extra_whitespaces", remove);
                if !charsmap.is_empty() {
                    let map = Value::Array(Array::U8(charsmap));
                    out.set("tokenizer.ggml.precompiled_charsmap", map);
                }
            }
            Self::WordPiece {
                lowercase,
                strip_accents,
            } => {
                out.set("tokenizer.ggml.normalizer.lowercase", Value::Bool(lowercase));
                let strip = Value::Bool(strip_accents);
                out.set("tokenizer.ggml.normalizer.strip_accents", strip);
            }
        }
    }
}
