//! Text to tokens and back, from a GGUF file's own vocabulary.
//!
//! A text is parted at special tokens (`special`); what lies between goes to the model that
//! `tokenizer.ggml.model` names:
//!
//! - `gpt2`, byte-level BPE (`bpe`): words by the patterns of `tokenizer.ggml.pre` (`words`), written in the
//!   byte alphabet (`bytes`), merged by rank (`merge`); `gemma4`, the same of characters;
//! - `llama`, SPM (`spm`): merged by the scores of tokens;
//! - `t5`, UGM (`ugm`): normalized by the file's table (`charsmap`), the likeliest tokens (`trie`);
//! - `bert`, WPM (`wpm`): words without accents, from the longest tokens.
//!
//! Time is about linear in the text for all of them, whatever the text and the vocabulary hold: special tokens are found
//! together (`automaton`), patterns do not backtrack, merging is n log n, and what looks for tokens at each place has
//! tokens of bounded length. A normalized text has a bounded number of bytes for each of the text.

mod automaton;
mod bpe;
mod bytes;
mod charsmap;
mod family;
mod merge;
mod roles;
mod special;
mod spm;
mod trie;
mod ugm;
mod vocabulary;
mod words;
mod wpm;

use gguf::Metadata;

use crate::{Error, Result};
use bpe::Bpe;
use family::Family;
use roles::Roles;
pub use roles::TokenRole;
use special::{Kind, Partition, Piece};
use spm::Spm;
use ugm::Ugm;
use vocabulary::Vocabulary;
use wpm::Wpm;

/// The sign that stands for a space in tokens of SPM, UGM and WPM.
const SPACE: char = '\u{2581}';

/// The same.
const SPACE_TEXT: &str = "\u{2581}";

/// Bytes of the longest text: with three bytes for each space its places still fit 32 bits.
const MAX_TEXT: usize = 1 << 30;

/// A tokenizer.
pub struct Tokenizer {
    model: Model,
    vocabulary: Vocabulary,
    partition: Partition,
    roles: Roles,
    /// Tokens behind which nothing is generated, ascending.
    ends: Vec<u32>,
    /// Tokens around every text.
    leading: Option<u32>,
    trailing: Option<u32>,
    add_sep: bool,
    /// Whether decoding takes away the space that encoding puts in front.
    drop_first_space: bool,
}

/// What makes tokens of a text without special tokens.
#[derive(Debug)]
enum Model {
    Bpe(Box<Bpe>),
    Spm(Box<Spm>),
    Ugm(Box<Ugm>),
    Wpm(Box<Wpm>),
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("n_vocab", &self.n_vocab())
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Builds the tokenizer that the metadata describe.
    ///
    /// # Errors
    /// A family or pre-tokenizer that this build does not know; arrays that are missing or do not fit
    /// together; tokens that occur twice; scores that are no numbers; ids of special tokens that the vocabulary
    /// does not have. The message names the key.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let family = Family::from_metadata(metadata)?;
        let mut vocabulary = Vocabulary::from_metadata(metadata)?;
        let defaults = family.defaults();
        let roles = Roles::find(metadata, &mut vocabulary, &defaults.roles)?;
        let flag = |name: &str, default: bool| -> Result<bool> {
            let key = format!("tokenizer.ggml.{name}");
            Ok(metadata.bool(&key)?.unwrap_or(default))
        };
        let prefix = flag("add_space_prefix", family.adds_space_prefix())?;
        let unknown = roles.id(TokenRole::Unknown);
        let model = match family {
            Family::Bpe(pre) => Model::Bpe(Box::new(Bpe::new(metadata, &vocabulary, pre)?)),
            Family::Spm => Model::Spm(Box::new(Spm::new(metadata, &vocabulary, unknown, prefix)?)),
            Family::Ugm => Model::Ugm(Box::new(Ugm::new(metadata, &vocabulary, unknown, prefix)?)),
            Family::Wpm => Model::Wpm(Box::new(Wpm::new(metadata, &vocabulary, unknown)?)),
        };
        let add_bos = flag("add_bos_token", defaults.add_bos)?;
        let add_eos = flag("add_eos_token", defaults.add_eos)?;
        let add_sep = flag("add_sep_token", defaults.add_sep)?;
        let last = match family {
            Family::Wpm => roles.id(TokenRole::Separator).filter(|_| add_sep),
            _ => roles.id(TokenRole::Eos).filter(|_| add_eos),
        };
        Ok(Self {
            leading: roles.id(TokenRole::Bos).filter(|_| add_bos),
            trailing: last,
            add_sep,
            drop_first_space: match family {
                Family::Bpe(_) => false,
                Family::Spm | Family::Ugm => prefix,
                Family::Wpm => true,
            },
            partition: Partition::new(&vocabulary)?,
            ends: roles.ends(&vocabulary),
            model,
            vocabulary,
            roles,
        })
    }

    /// Tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.vocabulary.len()
    }

    /// The token of a role, if there is one: by its key, else by its text, else by what the family is used to.
    pub fn role(&self, role: TokenRole) -> Option<u32> {
        self.roles.id(role)
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.role(TokenRole::Bos)
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.role(TokenRole::Eos)
    }

    /// The tokens that end what a model writes, ascending: ends of the sequence, of a turn, of a message.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Whether a token is a mark that text never means.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocabulary.kinds.get(id as usize) == Some(&Kind::Control)
    }

    /// The token's text as the file has it, in the alphabet of its family.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocabulary.texts.get(id as usize).map(|text| &**text)
    }

    /// The token that [`Self::encode`] puts in front with `add_special`.
    pub fn leading(&self) -> Option<u32> {
        self.leading
    }

    /// The token that [`Self::encode`] puts behind with `add_special`.
    pub fn trailing(&self) -> Option<u32> {
        self.trailing
    }

    /// Whether a separator belongs between the two texts of a pair.
    pub fn add_sep(&self) -> bool {
        self.add_sep
    }

    /// The ids of a text. `add_special` adds the tokens around it that the file asks for (BOS and EOS, or `[CLS]`
    /// and `[SEP]`); `parse_special` takes the texts of control tokens for the tokens. User-defined tokens are
    /// always recognised.
    ///
    /// # Errors
    /// A text of more than 1 GiB, and a table of replacements that is damaged where the text needs it or blows it up.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>> {
        check_size(text)?;
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        ids.extend(self.leading.filter(|_| add_special));
        for piece in self.partition.split(text, parse_special) {
            match (piece, &self.model) {
                (Piece::Token(id), _) => ids.push(id),
                (Piece::Text(text), Model::Bpe(bpe)) => bpe.encode(text, &self.vocabulary, &mut ids),
                (Piece::Text(text), Model::Spm(spm)) => spm.encode(text, &self.vocabulary, &mut ids),
                (Piece::Text(text), Model::Ugm(ugm)) => ugm.encode(text, &mut ids)?,
                (Piece::Text(text), Model::Wpm(wpm)) => wpm.encode(text, &mut ids),
            }
        }
        ids.extend(self.trailing.filter(|_| add_special));
        Ok(ids)
    }

    /// The bytes that ids stand for. They need not be whole UTF-8. Ids beyond the vocabulary have none. The
    /// space that encoding puts in front of a text is taken away, also behind a BOS.
    pub fn decode_bytes(&self, ids: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        let first = usize::from(ids.first().is_some_and(|&id| self.bos() == Some(id)));
        for (i, &id) in ids.iter().enumerate() {
            let start = out.len();
            self.append_bytes(id, &mut out);
            if i == first && self.drop_first_space && out.get(start) == Some(&b' ') {
                out.remove(start);
            }
        }
        out
    }

    /// Appends the bytes that a token stands for, as they are behind other tokens. They need not be whole UTF-8.
    pub fn append_bytes(&self, id: u32, out: &mut Vec<u8>) {
        let Some(text) = self.vocabulary.texts.get(id as usize) else {
            return;
        };
        let alphabet = match &self.model {
            Model::Bpe(bpe) => bpe.alphabet(),
            _ => None,
        };
        match (self.vocabulary.kinds[id as usize], alphabet) {
            (Kind::Normal, Some(alphabet)) => alphabet.append_bytes(text, out),
            (_, Some(_)) | (Kind::Control | Kind::Unknown, _) => out.extend_from_slice(text.as_bytes()),
            (kind, None) => match bytes::value(text).filter(|_| kind == Kind::Byte) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(text.replace(SPACE, " ").as_bytes()),
            },
        }
    }

    /// The text that ids stand for, with U+FFFD for what is no UTF-8.
    pub fn decode(&self, ids: &[u32]) -> String {
        String::from_utf8_lossy(&self.decode_bytes(ids)).into_owned()
    }
}

/// Refuses texts whose places do not fit 32 bits.
fn check_size(text: &str) -> Result<()> {
    if text.len() <= MAX_TEXT {
        return Ok(());
    }
    let found = text.len();
    Err(Error::Text(
        format!("expected a text of at most {MAX_TEXT} bytes, found {found}; cut it into parts").into(),
    ))
}
