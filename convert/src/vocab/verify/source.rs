//! A checkpoint's own tokenizer, made of its files by another way than the output's keys.

use std::path::{Path, PathBuf};

use foldhash::{HashMap, HashMapExt, HashSet};
use gguf_models::vocab::PreTokenizer;
use serde_json::{Value as Json, json};
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::{AddedToken as HfToken, DecoderWrapper, ModelWrapper, PostProcessorWrapper, Tokenizer};

use super::lengths;
use super::library::{self, Steps};
use super::ranks::RankTokenizer;
use crate::Result;
use crate::error::Error;
use crate::source::{read_bytes, read_json};
use crate::vocab::sentencepiece::{Kind, Piece, SentencePiece};
use crate::vocab::token::{BLANK, BLANK_TEXT, TokenType};
use crate::vocab::tokenizer::{AddedToken, Vocab};
use crate::vocab::{MERGES, VOCAB, bpe, tiktoken};

/// Where a checkpoint's tokenizer is. Cheap: nothing is read before it is needed.
#[derive(Clone, Debug)]
pub(crate) struct SourceTokenizer {
    /// The file or, for lists, the folder.
    pub(super) path: PathBuf,
    form: Form,
    added: Vec<AddedToken>,
}

#[derive(Clone, Debug)]
enum Form {
    /// tokenizer.json, run as Hugging Face runs it.
    Json,
    SentencePiece,
    Ranks(&'static PreTokenizer),
    /// vocab.json and merges.txt.
    Lists(&'static PreTokenizer),
}

impl SourceTokenizer {
    pub(crate) fn json(path: &Path) -> Self {
        Self::new(path, Form::Json, Vec::new())
    }

    pub(crate) fn sentence_piece(path: &Path, added: Vec<AddedToken>) -> Self {
        Self::new(path, Form::SentencePiece, added)
    }

    pub(crate) fn ranks(path: &Path, added: Vec<AddedToken>, pre: &'static PreTokenizer) -> Self {
        Self::new(path, Form::Ranks(pre), added)
    }

    pub(crate) fn lists(dir: &Path, added: Vec<AddedToken>, pre: &'static PreTokenizer) -> Self {
        Self::new(dir, Form::Lists(pre), added)
    }

    fn new(path: &Path, form: Form, added: Vec<AddedToken>) -> Self {
        Self {
            path: path.to_owned(),
            form,
            added,
        }
    }

    /// Reads the files and builds the tokenizer.
    pub(super) fn build(&self) -> Result<Built> {
        match self.form {
            Form::Json => self.build_json(),
            Form::SentencePiece => self.build_sentence_piece(),
            Form::Lists(pre) => self.build_lists(pre),
            Form::Ranks(pre) => {
                lengths::check_added(&self.added).map_err(|e| self.wrong(e))?;
                let ranks = tiktoken::read(&self.path)?;
                Ok(Built {
                    added: self.added.clone(),
                    engine: Engine::Ranks(RankTokenizer::new(ranks, &self.added, pre)?),
                })
            }
        }
    }

    fn build_json(&self) -> Result<Built> {
        /// The ids as the file has them: the library gives its own where they leave holes.
        #[derive(serde::Deserialize)]
        struct Parts {
            #[serde(default)]
            added_tokens: Vec<AddedToken>,
            #[serde(default)]
            normalizer: Json,
            #[serde(default)]
            pre_tokenizer: Json,
            #[serde(default)]
            decoder: Json,
            #[serde(default)]
            model: lengths::Model,
        }
        let parts: Parts = read_json(&self.path)?;
        let steps = Steps {
            normalizer: Some(&parts.normalizer),
            pre_tokenizer: Some(&parts.pre_tokenizer),
            decoder: Some(&parts.decoder),
        };
        parts.model.check().map_err(|e| self.wrong(e))?;
        library::check(steps, &parts.added_tokens).map_err(|e| self.wrong(e))?;
        let mut tokenizer = Tokenizer::from_bytes(read_bytes(&self.path)?).map_err(|e| self.wrong(e))?;
        // Whole texts are compared; and a file could ask for any length.
        tokenizer.with_truncation(None).map_err(|e| self.wrong(e))?;
        tokenizer.with_padding(None);
        // Nothing is put around texts, but a template could repeat them.
        tokenizer.with_post_processor(None::<PostProcessorWrapper>);
        tokenizer.with_decoder(None::<DecoderWrapper>);
        Ok(Built::library(tokenizer, parts.added_tokens))
    }

    fn build_sentence_piece(&self) -> Result<Built> {
        let model = SentencePiece::read(&self.path)?;
        let texts = model.pieces.iter().map(|piece| piece.text.as_str());
        let checked = match model.kind {
            Kind::Unigram => lengths::check_unigram(texts),
            _ => lengths::check_tokens(texts),
        };
        checked.map_err(|e| self.wrong(e))?;
        let mut added = self.added.clone();
        let listed: HashSet<u64> = added.iter().map(|token| token.id).collect();
        for (piece, id) in model.pieces.iter().zip(0u64..) {
            let special = matches!(piece.kind, TokenType::Control | TokenType::Unknown);
            if (special || piece.kind == TokenType::UserDefined) && !listed.contains(&id) {
                let content = piece.text.replace(BLANK, " ");
                added.push(AddedToken { id, content, special });
            }
        }
        let unk = usize::try_from(model.special[0])
            .ok()
            .filter(|&id| id < model.pieces.len());
        let engine: ModelWrapper = match model.kind {
            Kind::Unigram => {
                let vocab = model
                    .pieces
                    .iter()
                    .map(|p| (p.text.clone(), f64::from(p.score)))
                    .collect();
                let bytes = model.pieces.iter().any(|p| p.kind == TokenType::Byte);
                Unigram::from(vocab, unk, bytes)
                    .map_err(|e| self.wrong(e))?
                    .into()
            }
            _ => self.merging(&model.pieces, unk)?.into(),
        };
        let mut tokenizer = Tokenizer::new(engine);
        let blank = BLANK_TEXT;
        let mut normalizers = Vec::new();
        if !model.charsmap.is_empty() {
            // The library takes the table as base64 only.
            normalizers.push(json!({"type": "Precompiled", "precompiled_charsmap": encode(&model.charsmap)}));
        }
        if model.remove_extra_whitespaces {
            normalizers.push(json!({"type": "Strip", "strip_left": true, "strip_right": true}));
            let runs = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "});
            normalizers.push(runs);
        }
        if model.add_dummy_prefix {
            normalizers.push(json!({"type": "Prepend", "prepend": blank}));
        }
        normalizers.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": blank}));
        let steps = json!({"type": "Sequence", "normalizers": normalizers});
        let normalizer = Some(&steps);
        library::check(
            Steps {
                normalizer,
                ..Steps::default()
            },
            &added,
        )
        .map_err(|e| self.wrong(e))?;
        super::set_steps(&mut tokenizer, Some(steps), None).map_err(|e| self.wrong(e))?;
        add_tokens(&mut tokenizer, &added).map_err(|e| self.wrong(e))?;
        Ok(Built::library(tokenizer, added))
    }

    /// BPE by rank that does what merging by score does: every way to halve a token is a merge, in order of the
    /// scores.
    fn merging(&self, pieces: &[Piece], unk: Option<usize>) -> Result<BPE> {
        let mut ids: HashMap<&str, u32> = HashMap::with_capacity(pieces.len());
        ids.extend(pieces.iter().zip(0u32..).map(|(p, id)| (p.text.as_str(), id)));
        let mut merges = Vec::new();
        for piece in pieces.iter().filter(|p| p.kind == TokenType::Normal) {
            for (at, _) in piece.text.char_indices().skip(1) {
                let (left, right) = piece.text.split_at(at);
                if ids.contains_key(left) && ids.contains_key(right) {
                    merges.push((piece.score, left, right));
                }
            }
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0));
        let merges = merges
            .into_iter()
            .map(|(_, l, r)| (l.to_owned(), r.to_owned()))
            .collect();
        let vocab = ids
            .iter()
            .map(|(text, &id)| ((*text).to_owned(), id))
            .collect::<tokenizers::models::bpe::Vocab>();
        let builder = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .byte_fallback(true)
            .fuse_unk(true);
        let builder = match unk {
            Some(id) => builder.unk_token(pieces[id].text.clone()),
            None => builder,
        };
        builder.build().map_err(|e| self.wrong(e))
    }

    fn build_lists(&self, pre: &PreTokenizer) -> Result<Built> {
        let path = self.path.join(VOCAB);
        let pairs = read_json::<Vocab>(&path)?.ids(VOCAB.to_owned())?;
        let texts = pairs.iter().map(|(text, _)| text.as_str());
        lengths::check_tokens(texts).map_err(|e| self.wrong(e))?;
        library::check(Steps::default(), &self.added).map_err(|e| self.wrong(e))?;
        let merges = bpe::read_merges(&self.path.join(MERGES))?;
        let merges = merges.iter().filter_map(|m| bpe::parts(m));
        let merges = merges.map(|(l, r)| (l.to_owned(), r.to_owned())).collect();
        let vocab: tokenizers::models::bpe::Vocab =
            pairs.into_iter().map(|(text, id)| (text, id as u32)).collect();
        let model = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .build()
            .map_err(|e| self.wrong(e))?;
        let mut tokenizer = Tokenizer::new(model);
        let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let mut steps: Vec<_> = pre.patterns.iter().map(split).collect();
        let bytes =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        steps.push(bytes);
        let steps = json!({"type": "Sequence", "pretokenizers": steps});
        super::set_steps(&mut tokenizer, None, Some(steps)).map_err(|e| self.wrong(e))?;
        add_tokens(&mut tokenizer, &self.added).map_err(|e| self.wrong(e))?;
        Ok(Built::library(tokenizer, self.added.clone()))
    }

    /// What the library makes nothing of: it may be newer than the library.
    fn wrong(&self, e: impl std::fmt::Display) -> Error {
        let what = format!("`{}` in the `tokenizers` library", self.path.display());
        Error::unsupported(what, e)
    }
}

/// A tokenizer that can be run.
pub(super) struct Built {
    /// Tokens that are found by their text.
    pub(super) added: Vec<AddedToken>,
    pub(super) engine: Engine,
}

pub(super) enum Engine {
    Ranks(RankTokenizer),
    Library {
        tokenizer: Box<Tokenizer>,
        /// Ids that the library gives otherwise than the file.
        renamed: HashMap<String, u32>,
    },
}

impl Built {
    pub(super) fn library(tokenizer: Tokenizer, added: Vec<AddedToken>) -> Self {
        let mut renamed = HashMap::new();
        for token in &added {
            let id = tokenizer.token_to_id(&token.content);
            if id.is_some_and(|id| u64::from(id) != token.id) {
                renamed.insert(token.content.clone(), token.id as u32);
            }
        }
        Self {
            added,
            engine: Engine::Library {
                tokenizer: Box::new(tokenizer),
                renamed,
            },
        }
    }

    /// The ids of a text, with added tokens found in it and nothing put around it.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match &self.engine {
            Engine::Ranks(ranks) => ranks.encode(text),
            Engine::Library { tokenizer, renamed } => {
                // The fast way does not tell the texts of tokens.
                let encoding = if renamed.is_empty() {
                    tokenizer.encode_fast(text, false)
                } else {
                    tokenizer.encode(text, false)
                };
                let encoding = encoding.map_err(|e| {
                    let object = format!("source tokenizer on `{}`", super::shown(text));
                    Error::mismatch(object, "ids", e)
                })?;
                if renamed.is_empty() {
                    return Ok(encoding.get_ids().to_vec());
                }
                // By their text: the library's own number can be that of another token behind the holes.
                let tokens = encoding.get_ids().iter().zip(encoding.get_tokens());
                Ok(tokens
                    .map(|(id, text)| renamed.get(text).copied().unwrap_or(*id))
                    .collect())
            }
        }
    }
}

/// Adds tokens that are found wherever their text is, and by it alone. Two calls for all of them: each builds the
/// search anew.
pub(super) fn add_tokens(tokenizer: &mut Tokenizer, added: &[AddedToken]) -> tokenizers::Result<()> {
    let of = |special: bool| {
        let some = added
            .iter()
            .filter(move |t| t.special == special && !t.content.is_empty());
        some.map(move |t| HfToken::from(t.content.clone(), special).normalized(false))
    };
    tokenizer.add_special_tokens(of(true))?;
    tokenizer.add_tokens(of(false))?;
    Ok(())
}

fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group
            .iter()
            .enumerate()
            .fold(0u32, |bits, (i, &b)| bits | u32::from(b) << (16 - 8 * i));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= group.len() { char::from(digit) } else { '=' });
        }
    }
    out
}
