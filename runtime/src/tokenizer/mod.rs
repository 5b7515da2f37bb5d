//! Text to tokens and back, from a GGUF file's own vocabulary.
//!
//! Byte-level BPE (`tokenizer.ggml.model` is `gpt2`): the text is parted at special tokens, cut into words by
//! the patterns of `tokenizer.ggml.pre`, each word is written in the byte alphabet and merged. Other families
//! are refused by name.

mod bytes;
mod special;

use std::collections::HashMap;

use gguf::{Array, Metadata};
use gguf_models::vocab::{self, PreTokenizer};
use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::utils::SysRegex;

use crate::{Error, Result};
use bytes::ByteAlphabet;
use special::{Kind, Partition, Piece};

/// `bos_token_id` and `eos_token_id` of a BPE vocabulary that names none.
const DEFAULT_BOS_EOS: u64 = 11;

/// A tokenizer.
pub struct Tokenizer {
    bpe: BPE,
    patterns: Vec<SysRegex>,
    alphabet: ByteAlphabet,
    partition: Partition,
    tokens: Vec<String>,
    kinds: Vec<Kind>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("n_vocab", &self.tokens.len())
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Builds the tokenizer that the metadata describe.
    ///
    /// # Errors
    /// A family or pre-tokenizer that this build does not know; arrays that are missing or do not fit
    /// together; tokens that occur twice; ids of special tokens that the vocabulary does not have.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let family = metadata.string("tokenizer.ggml.model")?;
        if family != Some("gpt2") {
            return Err(unsupported(
                "tokenizer.ggml.model",
                "`gpt2` (byte-level BPE)",
                family,
            ));
        }
        let pre_name = metadata.string("tokenizer.ggml.pre")?.unwrap_or("default");
        let pre = vocab::by_name(pre_name).ok_or_else(|| {
            unsupported(
                "tokenizer.ggml.pre",
                "a pre-tokenizer that `gguf-convert --help` lists",
                Some(pre_name),
            )
        })?;
        let tokens = texts(metadata)?;
        let kinds = special::kinds(&tokens, kind_numbers(metadata)?)?;
        check_special_ids(metadata, tokens.len())?;
        let id = |key: &str| -> Result<Option<u32>> {
            let default = || Some(DEFAULT_BOS_EOS).filter(|&id| id < tokens.len() as u64);
            Ok(metadata.uint(key)?.or_else(default).map(|id| id as u32))
        };
        Ok(Self {
            bos: id("tokenizer.ggml.bos_token_id")?,
            eos: id("tokenizer.ggml.eos_token_id")?,
            add_bos: metadata
                .bool("tokenizer.ggml.add_bos_token")?
                .unwrap_or(pre.add_bos),
            add_eos: metadata.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            bpe: bpe(&tokens, metadata, pre)?,
            patterns: compile(pre)?,
            alphabet: ByteAlphabet::new(),
            partition: Partition::new(&tokens, &kinds),
            kinds,
            tokens,
        })
    }

    /// Tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.tokens.len()
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The token that [`Self::encode`] puts in front with `add_special`.
    pub fn leading(&self) -> Option<u32> {
        self.bos.filter(|_| self.add_bos)
    }

    /// The token that [`Self::encode`] puts behind with `add_special`.
    pub fn trailing(&self) -> Option<u32> {
        self.eos.filter(|_| self.add_eos)
    }

    /// The ids of a text. `add_special` adds BOS and EOS where the file says so; `parse_special` takes the
    /// texts of control tokens for the tokens. User-defined tokens are always recognised.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        ids.extend(self.leading().filter(|_| add_special));
        let mut word = String::new();
        for piece in self.partition.split(text, parse_special) {
            match piece {
                Piece::Token(id) => ids.push(id),
                Piece::Text(text) => {
                    for range in self.words(text) {
                        word.clear();
                        word.extend(text[range].bytes().map(|b| self.alphabet.letter(b)));
                        let tokens = self.bpe.tokenize(&word).map_err(|e| broken(&e.to_string()))?;
                        ids.extend(tokens.iter().map(|t| t.id));
                    }
                }
            }
        }
        ids.extend(self.trailing().filter(|_| add_special));
        Ok(ids)
    }

    /// Cuts a text into words: each pattern is applied to every fragment that the one before left, and what
    /// it does not match stays a fragment.
    fn words(&self, text: &str) -> Vec<std::ops::Range<usize>> {
        let mut words: Vec<_> = std::iter::once(0..text.len()).collect();
        for pattern in &self.patterns {
            let mut finer = Vec::with_capacity(words.len());
            for range in words {
                let mut end = range.start;
                for (from, to) in pattern.find_iter(&text[range.clone()]) {
                    let (from, to) = (range.start + from, range.start + to);
                    if from > end {
                        finer.push(end..from);
                    }
                    if to > from {
                        finer.push(from..to);
                    }
                    end = to;
                }
                if range.end > end {
                    finer.push(end..range.end);
                }
            }
            words = finer;
        }
        words
    }

    /// The bytes that ids stand for. They need not be whole UTF-8. Ids beyond the vocabulary have none.
    pub fn decode_bytes(&self, ids: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        for &id in ids {
            let Some(text) = self.tokens.get(id as usize) else {
                continue;
            };
            match self.kinds[id as usize] {
                Kind::Normal => self.alphabet.append_bytes(text, &mut out),
                _ => out.extend_from_slice(text.as_bytes()),
            }
        }
        out
    }

    /// The text that ids stand for, with U+FFFD for what is no UTF-8.
    pub fn decode(&self, ids: &[u32]) -> String {
        String::from_utf8_lossy(&self.decode_bytes(ids)).into_owned()
    }
}

fn unsupported(key: &str, known: &str, found: Option<&str>) -> Error {
    Error::Unsupported {
        object: format!("metadata key `{key}`").into(),
        known: known.into(),
        found: found.map_or("nothing".into(), |f| format!("`{f}`").into()),
    }
}

fn broken(what: &str) -> Error {
    Error::Vocabulary(what.into())
}

fn needed(key: &str) -> Error {
    gguf::Error::Key {
        key: key.into(),
        expected: "an array".into(),
        found: "nothing".into(),
    }
    .into()
}

/// Token texts; empty ones get the reference's stand-in.
fn texts(metadata: &Metadata) -> Result<Vec<String>> {
    const KEY: &str = "tokenizer.ggml.tokens";
    let tokens = metadata.strings(KEY)?.ok_or_else(|| needed(KEY))?;
    if u32::try_from(tokens.len()).is_err() {
        return Err(broken("more tokens than ids of 32 bits"));
    }
    if let Some(i) = tokens.first_not_utf8() {
        return Err(broken(&format!("token {i} is not UTF-8")));
    }
    let named = tokens.iter().enumerate();
    Ok(named
        .map(|(i, t)| {
            if t.is_empty() {
                format!("[EMPTY_{i}]")
            } else {
                t.into_owned()
            }
        })
        .collect())
}

/// Refuses ids of special tokens that no token has, of those too that are not used here: they are signs of a
/// vocabulary of another model.
fn check_special_ids(metadata: &Metadata, n_vocab: usize) -> Result<()> {
    let is_id = |key: &str| key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id");
    for (key, _) in metadata.iter().filter(|(key, _)| is_id(key)) {
        if let Some(id) = metadata.uint(key)?.filter(|&id| id >= n_vocab as u64) {
            return Err(gguf::Error::Key {
                key: key.into(),
                expected: format!("an id below the {n_vocab} tokens of the vocabulary").into(),
                found: id.to_string().into(),
            }
            .into());
        }
    }
    Ok(())
}

fn kind_numbers(metadata: &Metadata) -> Result<Option<Vec<i64>>> {
    const KEY: &str = "tokenizer.ggml.token_type";
    Ok(match metadata.array(KEY)? {
        None => None,
        Some(Array::I32(v)) => Some(v.iter().map(|&x| i64::from(x)).collect()),
        Some(Array::U32(v)) => Some(v.iter().map(|&x| i64::from(x)).collect()),
        Some(Array::U8(v)) => Some(v.iter().map(|&x| i64::from(x)).collect()),
        Some(_) => {
            return Err(gguf::Error::Key {
                key: KEY.into(),
                expected: "an array of i32".into(),
                found: "an array of another type".into(),
            }
            .into());
        }
    })
}

fn bpe(tokens: &[String], metadata: &Metadata, pre: &PreTokenizer) -> Result<BPE> {
    const KEY: &str = "tokenizer.ggml.merges";
    let mut ids: HashMap<&str, u32> = HashMap::with_capacity(tokens.len());
    for (id, text) in tokens.iter().enumerate() {
        if let Some(first) = ids.insert(text, id as u32) {
            return Err(broken(&format!(
                "token `{text}` occurs twice: ids {first} and {id}"
            )));
        }
    }
    let mut merges = Merges::new();
    let mut joined = String::new();
    for (i, merge) in metadata
        .strings(KEY)?
        .ok_or_else(|| needed(KEY))?
        .iter()
        .enumerate()
    {
        // The left part may itself start with a space.
        let merge = &*merge;
        let at = merge.bytes().skip(1).position(|b| b == b' ').map(|p| p + 1);
        let Some((left, right)) = at.map(|at| (&merge[..at], &merge[at + 1..])) else {
            return Err(broken(&format!(
                "merge {i}, `{merge}`: expected two parts with a space between"
            )));
        };
        joined.clear();
        joined.extend([left, right]);
        // Without a token for each part and the whole, a merge can never be part of a result.
        if [left, right, &joined].iter().all(|t| ids.contains_key(t)) {
            merges.push((left.to_owned(), right.to_owned()));
        }
    }
    let vocab: Vocab = ids.into_iter().map(|(text, id)| (text.to_owned(), id)).collect();
    BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(|e| broken(&e.to_string()))
}

fn compile(pre: &PreTokenizer) -> Result<Vec<SysRegex>> {
    let patterns = pre.patterns.iter();
    patterns
        .map(|p| SysRegex::new(p).map_err(|e| broken(&format!("pattern `{p}` does not compile: {e}"))))
        .collect()
}
