//! `SentencePiece` BPE: from `tokenizer.model`, or from tokenizer.json.

use foldhash::{HashMap, HashMapExt, HashSet};
use gguf::listed;
use serde_json::Value as Json;

use super::content::{Content, Family, OwnIds};
use super::sentencepiece::{Kind, SentencePiece};
use super::token::{ADDED_SCORE, BLANK, Token, TokenType};
use super::tokenizer::{AddedToken, TokenizerJson};
use super::{TOKENIZER, bpe, steps};
use crate::Result;
use crate::error::{Error, quoted};

/// Normalizers that a note names.
const N_SHOWN: usize = 8;

/// Replaced tokens that a note names.
const N_REPLACED: usize = 4;

/// What the steps of tokenizer.json do with blanks.
#[derive(Debug, Default)]
pub(super) struct Blanks {
    /// Whether a blank is put in front of text.
    pub(super) prefix: bool,
    /// Whether blanks become their sign.
    pub(super) escaped: bool,
    /// Whether runs of blanks become one.
    pub(super) merged: bool,
    /// Steps of the pre-tokenizer that these families have no place for.
    pub(super) unknown: Vec<String>,
    /// Normalizers that GGUF has no key for.
    pub(super) normalizers: Vec<String>,
    /// Table of replacements in base64.
    pub(super) charsmap: Option<String>,
}

impl Blanks {
    pub(super) fn of(tokenizer: &TokenizerJson) -> Self {
        let mut blanks = Self::default();
        for step in steps(&tokenizer.normalizer, "normalizers") {
            blanks.normalizer(step);
        }
        for step in steps(&tokenizer.pre_tokenizer, "pretokenizers") {
            blanks.pre_tokenizer(step);
        }
        blanks
    }

    fn normalizer(&mut self, step: &Json) {
        let sign = |value: &Json| value.as_str().is_some_and(|s| s.chars().eq([BLANK]));
        match step["type"].as_str().unwrap_or("none") {
            "Prepend" if sign(&step["prepend"]) => self.prefix = true,
            "Replace" if step["pattern"]["String"] == " " && sign(&step["content"]) => self.escaped = true,
            "Replace" if step["pattern"]["Regex"] == " {2,}" => self.merged = true,
            "Precompiled" => self.charsmap = step["precompiled_charsmap"].as_str().map(str::to_owned),
            other => self.normalizers.push(quoted(other)),
        }
    }

    fn pre_tokenizer(&mut self, step: &Json) {
        match step["type"].as_str().unwrap_or("none") {
            "Metaspace" => {
                self.escaped = true;
                self.prefix |= match step["prepend_scheme"].as_str() {
                    Some(scheme) => scheme != "never",
                    None => step["add_prefix_space"].as_bool().unwrap_or(true),
                };
            }
            "WhitespaceSplit" => self.merged = true,
            // Blanks are gone by then.
            "Split" if step["pattern"]["String"] == " " && self.escaped => {}
            _ => self.unknown.push(step.to_string()),
        }
    }

    /// Refuses what these families cannot do, and says what they do otherwise.
    pub(super) fn check(&self, family: &str, notes: &mut Vec<String>) -> Result<()> {
        if let Some(step) = self.unknown.first() {
            let object = format!("{TOKENIZER} `pre_tokenizer` of a {family} model");
            let expected = "steps that write blanks as their sign, `Metaspace` or none, as tokens do";
            return Err(Error::mismatch(object, expected, format!("`{step}`")));
        }
        if !self.normalizers.is_empty() {
            let kinds = listed(&self.normalizers, N_SHOWN, ", ");
            notes.push(format!(
                "{TOKENIZER} normalizes text with {kinds}, the output does not"
            ));
        }
        Ok(())
    }
}

/// From tokenizer.json: the score of a token is the rank of the first merge that makes it, below zero, so that
/// merging by score takes the same pairs in the same order.
pub(super) fn from_json(tokenizer: TokenizerJson, notes: &mut Vec<String>) -> Result<Content> {
    let blanks = Blanks::of(&tokenizer);
    blanks.check("SentencePiece BPE", notes)?;
    let TokenizerJson {
        added_tokens, model, ..
    } = tokenizer;
    let mut vocab = model.vocab.ids(format!("{TOKENIZER} `vocab`"))?;
    vocab.sort_by_key(|&(_, id)| id);
    let mut ranks = merge_ranks(&vocab, &model.merges)?;
    let added_ids: HashSet<u64> = added_tokens.iter().map(|t| t.id).collect();
    let mut own_ids = OwnIds::default();
    let mut next = model.merges.len();
    let mut tokens = Vec::with_capacity(vocab.len());
    for (at, (text, id)) in vocab.into_iter().enumerate() {
        let kind = if Some(&text) == model.unk_token.as_ref() {
            own_ids.unk = Some(id);
            TokenType::Unknown
        } else if byte(&text).is_some() && model.byte_fallback == Some(true) {
            TokenType::Byte
        } else {
            TokenType::Normal
        };
        let is_added = added_ids.contains(&id);
        let score = match ranks[at].take() {
            Some(rank) => -(rank as f32),
            None if kind == TokenType::Normal && !is_added => {
                next += 1;
                -((next - 1) as f32)
            }
            None => 0.0,
        };
        tokens.push(Token {
            id,
            text,
            kind,
            score,
        });
    }
    merge_added(&mut tokens, &added_tokens, notes);
    Ok(Content {
        file: TOKENIZER.to_owned(),
        tokens,
        added: added_tokens,
        family: Family::Spm {
            space_prefix: blanks.prefix,
        },
        own_ids,
    })
}

/// For each token of the vocabulary the first merge that makes it.
fn merge_ranks(vocab: &[(String, u64)], merges: &[String]) -> Result<Vec<Option<usize>>> {
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(vocab.len());
    places.extend(
        vocab
            .iter()
            .enumerate()
            .map(|(at, (text, _))| (text.as_str(), at)),
    );
    let mut ranks = vec![None; vocab.len()];
    let mut whole = String::new();
    for (rank, merge) in merges.iter().enumerate() {
        let made = bpe::parts(merge).and_then(|(left, right)| {
            whole.clear();
            whole.extend([left, right]);
            let known = places.contains_key(left) && places.contains_key(right);
            places.get(whole.as_str()).copied().filter(|_| known)
        });
        let Some(at) = made else {
            let object = format!("{TOKENIZER}: merge `{}`", merge.escape_debug());
            return Err(Error::mismatch(object, "two tokens that make a token", "others"));
        };
        ranks[at].get_or_insert(rank);
    }
    Ok(ranks)
}

/// Tokens that other files than `tokenizer.model` add or change.
#[derive(Debug, Default)]
pub(super) struct Additions {
    /// Of `added_tokens.json` and `tokenizer_config.json`.
    pub(super) listed: Vec<AddedToken>,
    /// Of tokenizer.json, where there is one.
    pub(super) json: Option<Vec<AddedToken>>,
}

/// From `tokenizer.model`.
pub(super) fn from_model(
    file: &str,
    model: SentencePiece,
    additions: Additions,
    notes: &mut Vec<String>,
) -> Result<Content> {
    let [unk, bos, eos, pad] = model.special.map(|id| u64::try_from(id).ok());
    let family = match model.kind {
        Kind::Bpe => {
            if !model.charsmap.is_empty() {
                notes.push(format!("{file} normalizes text by a table, the output does not"));
            }
            Family::Spm {
                space_prefix: model.add_dummy_prefix,
            }
        }
        Kind::Unigram => Family::Unigram {
            space_prefix: model.add_dummy_prefix,
            remove_extra_whitespaces: model.remove_extra_whitespaces,
            charsmap: model.charsmap,
        },
        Kind::Other(kind) => {
            let what = format!("{file}: `model_type` {kind} (words or characters)");
            return Err(Error::unsupported(what, "Unigram (1) and BPE (2) are"));
        }
    };
    let Additions { listed, json } = additions;
    let pieces = model.pieces.into_iter().zip(0u64..);
    let mut tokens: Vec<Token> = pieces
        .map(|(piece, id)| Token {
            id,
            text: piece.text,
            kind: piece.kind,
            score: piece.score,
        })
        .collect();
    let mut added = listed;
    if let Some(json) = json {
        let mut ordinary = Vec::new();
        let ids: HashSet<u64> = added.iter().map(|token| token.id).collect();
        for token in json.into_iter().filter(|t| !ids.contains(&t.id)) {
            let piece = usize::try_from(token.id).ok().and_then(|id| tokens.get_mut(id));
            match piece {
                // The reference converter takes such pieces for ordinary ones, and outputs are to be equal.
                Some(piece) if piece.kind == TokenType::UserDefined && piece.text == token.content => {
                    piece.kind = TokenType::Normal;
                    ordinary.push(token);
                }
                _ => added.push(token),
            }
        }
        merge_added(&mut tokens, &added, notes);
        added.extend(ordinary);
        added.sort_by_key(|t| t.id);
    } else {
        merge_added(&mut tokens, &added, notes);
    }
    Ok(Content {
        file: file.to_owned(),
        tokens,
        added,
        family,
        own_ids: OwnIds { bos, eos, unk, pad },
    })
}

/// Puts added tokens into the vocabulary. One that the vocabulary already has with a part of its own keeps it.
pub(super) fn merge_added(tokens: &mut Vec<Token>, added: &[AddedToken], notes: &mut Vec<String>) {
    let n = tokens.len();
    let mut replaced = Vec::new();
    for token in added {
        let new = Token::added(token, ADDED_SCORE);
        // Ids of these families are dense and in order, but for those of damaged files.
        let at = usize::try_from(token.id)
            .ok()
            .filter(|&at| at < n && tokens[at].id == token.id);
        match at.map(|at| &mut tokens[at]) {
            None => tokens.push(new),
            Some(old) if old.text == token.content => {
                if matches!(old.kind, TokenType::Normal) {
                    *old = new;
                }
            }
            Some(old) => {
                if old.kind != TokenType::Unused {
                    replaced.push(format!(
                        "token {}, {}, is replaced by the added token {}",
                        token.id,
                        quoted(&old.text),
                        quoted(&token.content)
                    ));
                }
                *old = new;
            }
        }
    }
    if !replaced.is_empty() {
        notes.push(listed(&replaced, N_REPLACED, "; "));
    }
}

/// The byte that a token such as `<0x0A>` stands for.
pub(super) fn byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2)
}
