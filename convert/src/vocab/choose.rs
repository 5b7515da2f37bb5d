//! Which of a checkpoint's files tell the vocabulary.
//!
//! In order: `tokenizer.model` with `SentencePiece` BPE, for its scores, unless tokenizer.json is of another kind;
//! tokenizer.json; `tokenizer.model` of any kind; lists of ranks; vocab.json with merges.txt. What is left out
//! is said. The kind is always what the files say: no model's name is looked at.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::content::Content;
use super::sentencepiece::{Kind, SentencePiece};
use super::tokenizer::{AddedToken, TokenizerJson, Vocab};
use super::verify::SourceTokenizer;
use super::{ADDED_TOKENS, MERGES, TOKENIZER, TOKENIZER_CONFIG, VOCAB};
use super::{bpe, pre, spm, tiktoken, unigram, wordpiece};
use crate::Result;
use crate::error::Error;
use crate::source::{read_bytes, read_json_if_there};

/// Names of `SentencePiece` models.
const MODELS: &[&str] = &["tokenizer.model", "spiece.model", "sentencepiece.bpe.model"];

/// Names of lists of ranks; `tokenizer.model` may be one too.
const RANKS: &[&str] = &[
    "tiktoken.model",
    "tokenizer.tiktoken",
    "qwen.tiktoken",
    "hy.tiktoken",
];

/// A tokenizer, and the files it is from.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) content: Content,
    pub(super) source: SourceTokenizer,
    /// Null without tokenizer.json.
    pub(super) post_processor: Json,
    pub(super) files: Vec<PathBuf>,
}

/// What tokenizer.json holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    ByteLevel,
    Spm,
    Unigram,
    WordPiece,
}

impl Form {
    fn of(tokenizer: &TokenizerJson, pre_name: Option<&str>) -> Result<Self> {
        refuse_unknown_settings(tokenizer)?;
        match tokenizer.model.kind.as_deref().unwrap_or("BPE") {
            "BPE" if pre::is_byte_level(tokenizer) => Ok(Self::ByteLevel),
            "BPE" if tokenizer.model.byte_fallback == Some(true) || spm::Blanks::of(tokenizer).escaped => {
                Ok(Self::Spm)
            }
            // Whoever names a pre-tokenizer says that there are words of bytes.
            "BPE" if pre_name.is_some() => Ok(Self::ByteLevel),
            "BPE" => Err(pre::no_byte_level(tokenizer)),
            "Unigram" => Ok(Self::Unigram),
            "WordPiece" => Ok(Self::WordPiece),
            other => Err(Error::unsupported(
                format!("{TOKENIZER}: model type `{}`", other.escape_debug()),
                "BPE, Unigram and WordPiece are",
            )),
        }
    }
}

/// Settings that no vocabulary of GGUF has, and steps of another type than they must have.
fn refuse_unknown_settings(tokenizer: &TokenizerJson) -> Result<()> {
    let model = &tokenizer.model;
    let inside = model.continuing_subword_prefix.as_deref().unwrap_or_default();
    let is_word_piece = model.kind.as_deref() == Some("WordPiece");
    let end = &model.end_of_word_suffix;
    let marks = [
        ("end_of_word_suffix", !end.is_null() && end != "", end.to_string()),
        (
            "continuing_subword_prefix",
            !inside.is_empty() && !is_word_piece,
            format!("{inside:?}"),
        ),
    ];
    for (name, is_set, found) in marks {
        if is_set {
            let object = format!("{TOKENIZER} `model.{name}`");
            return Err(Error::mismatch(
                object,
                "nothing, as GGUF has no such mark",
                found,
            ));
        }
    }
    let steps = [
        ("normalizer", &tokenizer.normalizer),
        ("pre_tokenizer", &tokenizer.pre_tokenizer),
        ("decoder", &tokenizer.decoder),
    ];
    match steps
        .into_iter()
        .find(|(_, step)| !step.is_null() && !step.is_object())
    {
        Some((name, step)) => Err(Error::mismatch(
            format!("{TOKENIZER} `{name}`"),
            "a step: an object with a `type`, or null",
            step,
        )),
        None => Ok(()),
    }
}

/// Reads the tokenizer.
pub(super) fn read(
    dir: &Path,
    config: &Json,
    pre_name: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Chosen> {
    let json: Option<TokenizerJson> = read_json_if_there(&dir.join(TOKENIZER))?;
    let model = MODELS
        .iter()
        .map(|name| dir.join(name))
        .find(|path| path.exists());
    let Some(json) = json else {
        let added = added_tokens(dir, config)?;
        return match model {
            Some(path) if !tiktoken::looks_like(&read_bytes(&path)?) => {
                refuse_shifted(&path, config)?;
                no_pre(pre_name, notes);
                let model = SentencePiece::read(&path)?;
                let source = SourceTokenizer::sentence_piece(&path, added.clone());
                let additions = spm::Additions {
                    listed: added,
                    json: None,
                };
                let content = spm::from_model(&name(&path), model, additions, notes)?;
                Ok(chosen(content, source, Json::Null, [path]))
            }
            model => read_lists(dir, model, config, added, pre_name, notes),
        };
    };
    let form = Form::of(&json, pre_name)?;
    if form != Form::ByteLevel {
        no_pre(pre_name, notes);
    }
    let post_processor = json.post_processor.clone();
    let path = dir.join(TOKENIZER);
    let source = SourceTokenizer::json(&path);
    let scores = model
        .map(|model| with_scores(&model, form, notes))
        .transpose()?
        .flatten();
    let content = match (form, scores) {
        (Form::Spm, Some((model, pieces))) => {
            let blanks = spm::Blanks::of(&json);
            blanks.check("SentencePiece BPE", notes)?;
            let additions = spm::Additions {
                listed: added_tokens(dir, config)?,
                json: Some(json.added_tokens),
            };
            let pieces = SentencePiece {
                add_dummy_prefix: blanks.prefix,
                ..pieces
            };
            let content = spm::from_model(&name(&model), pieces, additions, notes)?;
            return Ok(chosen(content, source, post_processor, [path, model]));
        }
        (Form::Spm, None) => spm::from_json(json, notes)?,
        (Form::ByteLevel, _) => bpe::from_json(json, pre_name, notes)?,
        (Form::Unigram, _) => unigram::from_json(json, notes)?,
        (Form::WordPiece, _) => wordpiece::from_json(json, notes)?,
    };
    Ok(chosen(content, source, post_processor, [path]))
}

/// The model beside tokenizer.json, where it has scores for the same tokenizer.
fn with_scores(path: &Path, form: Form, notes: &mut Vec<String>) -> Result<Option<(PathBuf, SentencePiece)>> {
    if form == Form::Spm && !tiktoken::looks_like(&read_bytes(path)?) {
        let model = SentencePiece::read(path)?;
        if model.kind == Kind::Bpe {
            return Ok(Some((path.to_owned(), model)));
        }
    }
    // Both hold the same Unigram model; only tokenizer.json has the ids of the embedding's rows.
    if form != Form::Unigram {
        notes.push(format!(
            "{} is left out: {TOKENIZER} is of another kind",
            name(path)
        ));
    }
    Ok(None)
}

/// Files without any structure: ranks, or vocabulary and merges.
fn read_lists(
    dir: &Path,
    model: Option<PathBuf>,
    config: &Json,
    added: Vec<AddedToken>,
    pre_name: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Chosen> {
    let class = config["tokenizer_class"].as_str();
    let ranks = RANKS.iter().map(|name| dir.join(name)).find(|path| path.exists());
    if let Some(path) = ranks.or(model) {
        let file = name(&path);
        let pre = bpe::pre_of_class(&file, class, pre_name, notes)?;
        let ranks = tiktoken::read(&path)?;
        let content = tiktoken::content(&file, &ranks, added, pre, pre_name, notes);
        let source = SourceTokenizer::ranks(&path, content.added.clone(), pre);
        return Ok(chosen(content, source, Json::Null, [path]));
    }
    let (vocab, merges) = (dir.join(VOCAB), dir.join(MERGES));
    if vocab.exists() && merges.exists() {
        let pre = bpe::pre_of_class(VOCAB, class, pre_name, notes)?;
        let content = bpe::from_lists(dir, added, pre, pre_name)?;
        let source = SourceTokenizer::lists(dir, content.added.clone(), pre);
        return Ok(chosen(content, source, Json::Null, [vocab, merges]));
    }
    let other: Vec<&str> = MODELS.iter().chain(RANKS).copied().collect();
    Err(Error::io(
        "open",
        &dir.join(TOKENIZER),
        format!(
            "there is none, nor one of {}, or {VOCAB} with {MERGES}",
            other.join(", ")
        ),
    ))
}

fn chosen<const N: usize>(
    content: Content,
    source: SourceTokenizer,
    post_processor: Json,
    files: [PathBuf; N],
) -> Chosen {
    Chosen {
        content,
        source,
        post_processor,
        files: files.into(),
    }
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn no_pre(pre_name: Option<&str>, notes: &mut Vec<String>) {
    if let Some(name) = pre_name {
        notes.push(format!(
            "`--pre {name}` has no effect: the tokenizer is no byte-level BPE"
        ));
    }
}

/// Some classes give their tokens other ids than the model has; only tokenizer.json shows which.
fn refuse_shifted(path: &Path, config: &Json) -> Result<()> {
    let class = config["tokenizer_class"].as_str().unwrap_or_default();
    if ["XLMRoberta", "Camembert", "MBart", "BarthezT", "NllbT", "XGLM"]
        .iter()
        .any(|c| class.starts_with(c))
    {
        let what = format!(
            "{} of a `{}`, whose ids are not those of the file,",
            name(path),
            class.escape_debug()
        );
        return Err(Error::unsupported(
            what,
            format!("add the checkpoint's {TOKENIZER}"),
        ));
    }
    Ok(())
}

/// The tokens that `added_tokens.json` and `tokenizer_config.json` add; the latter win.
fn added_tokens(dir: &Path, config: &Json) -> Result<Vec<AddedToken>> {
    let listed: Option<Vocab> = read_json_if_there(&dir.join(ADDED_TOKENS))?;
    let pairs = listed.unwrap_or_default().ids(ADDED_TOKENS.to_owned())?;
    let plain = |(content, id)| AddedToken {
        id,
        content,
        special: false,
    };
    let mut added: Vec<AddedToken> = pairs.into_iter().map(plain).collect();
    let key = "added_tokens_decoder";
    let mut decoded = Vec::new();
    for (id, token) in config[key].as_object().into_iter().flatten() {
        let content = token.as_str().or_else(|| token["content"].as_str());
        let (Ok(id), Some(content)) = (id.parse(), content) else {
            let object = format!("{TOKENIZER_CONFIG} `{key}` entry `{}`", id.escape_debug());
            return Err(Error::mismatch(
                object,
                "an id, and an object with `content`",
                token,
            ));
        };
        decoded.push(AddedToken {
            id,
            content: content.to_owned(),
            special: token["special"].as_bool().unwrap_or(false),
        });
    }
    let ids: HashSet<u64> = decoded.iter().map(|t| t.id).collect();
    added.retain(|t| !ids.contains(&t.id));
    added.extend(decoded);
    added.sort_by_key(|t| t.id);
    Ok(added)
}
