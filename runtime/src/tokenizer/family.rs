//! The families of tokenizers, and what holds where a file does not say.

use gguf::Metadata;
use gguf_models::vocab::{self, PreTokenizer};

use super::roles::TokenRole;
use crate::{Error, Result};

/// `eos_token_id` of a BPE vocabulary that names none.
const DEFAULT_EOS: u32 = 11;

/// How tokens are made, by `tokenizer.ggml.model`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Family {
    /// `gpt2`: BPE behind a pre-tokenizer, which says of bytes or characters; `gemma4` of characters.
    Bpe(&'static PreTokenizer),
    /// `llama`: `SentencePiece` BPE.
    Spm,
    /// `t5`: `SentencePiece` Unigram.
    Ugm,
    /// `bert`: `WordPiece`.
    Wpm,
}

/// What a family is used to.
pub(super) struct Defaults {
    pub(super) roles: Vec<(TokenRole, u32)>,
    pub(super) add_bos: bool,
    pub(super) add_eos: bool,
    pub(super) add_sep: bool,
}

impl Family {
    /// The family that the file names.
    pub(super) fn from_metadata(metadata: &Metadata) -> Result<Self> {
        match metadata.string("tokenizer.ggml.model")? {
            Some(model @ ("gpt2" | "gemma4")) => {
                let usual = if model == "gpt2" { "default" } else { model };
                let name = metadata.string("tokenizer.ggml.pre")?.unwrap_or(usual);
                vocab::by_name(name).map(Self::Bpe).ok_or_else(|| {
                    let known = "a pre-tokenizer that `gguf-convert --help` lists";
                    unsupported("tokenizer.ggml.pre", known, Some(name))
                })
            }
            Some("llama") => Ok(Self::Spm),
            Some("t5") => Ok(Self::Ugm),
            Some("bert") => Ok(Self::Wpm),
            other => {
                let known = "`gpt2` or `gemma4` (BPE), `llama` (SPM), `t5` (UGM) or `bert` (WPM)";
                Err(unsupported("tokenizer.ggml.model", known, other))
            }
        }
    }

    /// Ids and flags for keys that the file does not have.
    pub(super) fn defaults(self) -> Defaults {
        use TokenRole::{Bos, Eos, Mask, Padding, Separator, Unknown};
        let roles = match self {
            Self::Bpe(pre) => {
                let bos = pre.default_bos.map(|id| (Bos, id));
                bos.into_iter().chain([(Eos, DEFAULT_EOS)]).collect()
            }
            Self::Spm => vec![(Bos, 1), (Eos, 2), (Unknown, 0)],
            Self::Ugm => vec![(Eos, 1), (Unknown, 2), (Padding, 0)],
            Self::Wpm => vec![
                (Bos, 101),
                (Unknown, 100),
                (Separator, 102),
                (Padding, 0),
                (Mask, 103),
            ],
        };
        let (add_bos, add_eos, add_sep) = match self {
            Self::Bpe(pre) => (pre.add_bos, false, pre.add_sep),
            Self::Spm => (true, false, false),
            Self::Ugm => (false, true, false),
            Self::Wpm => (true, false, true),
        };
        Defaults {
            roles,
            add_bos,
            add_eos,
            add_sep,
        }
    }

    /// Whether a space goes in front of texts where the file does not say.
    pub(super) fn adds_space_prefix(self) -> bool {
        matches!(self, Self::Spm)
    }
}

fn unsupported(key: &str, known: &str, found: Option<&str>) -> Error {
    Error::Unsupported {
        object: format!("metadata key `{key}`").into(),
        known: known.into(),
        found: found.map_or("nothing".into(), |f| format!("`{f}`").into()),
    }
}
