//! Byte-level BPE: from tokenizer.json, or from vocab.json and merges.txt.

use std::path::Path;

use foldhash::{HashSet, HashSetExt};
use gguf_models::vocab::{self, PreTokenizer};
use rayon::prelude::*;

use super::content::{Content, Family, OwnIds};
use super::token::Token;
use super::tokenizer::{AddedToken, TokenizerJson, Vocab};
use super::{MERGES, TOKENIZER, VOCAB, pre};
use crate::Result;
use crate::error::Error;
use crate::source::{read_json, read_text};

/// From tokenizer.json.
pub(super) fn from_json(
    tokenizer: TokenizerJson,
    pre_name: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Content> {
    let pre = pre::recognise(&tokenizer, pre_name, notes)?;
    content(
        TOKENIZER,
        tokenizer.model.vocab,
        tokenizer.model.merges,
        tokenizer.added_tokens,
        pre,
        pre_name,
    )
}

/// From vocab.json and merges.txt, which hold no pattern.
pub(super) fn from_lists(
    dir: &Path,
    added: Vec<AddedToken>,
    pre: &'static PreTokenizer,
    pre_name: Option<&str>,
) -> Result<Content> {
    let vocab: Vocab = read_json(&dir.join(VOCAB))?;
    let merges = read_merges(&dir.join(MERGES))?;
    content(VOCAB, vocab, merges, added, pre, pre_name)
}

/// The merges of merges.txt: one a line, behind a line that may name the version.
pub(super) fn read_merges(path: &Path) -> Result<Vec<String>> {
    let text = read_text(path)?;
    let mut lines = text.lines().peekable();
    lines.next_if(|line| line.starts_with('#'));
    Ok(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn content(
    file: &str,
    vocab: Vocab,
    merges: Vec<String>,
    added: Vec<AddedToken>,
    pre: &'static PreTokenizer,
    pre_name: Option<&str>,
) -> Result<Content> {
    let vocab = vocab.ids(format!("{file} `vocab`"))?;
    check_merges(file, &merges, &vocab, &added)?;
    let mut tokens: Vec<Token> = vocab
        .into_iter()
        .map(|(text, id)| Token::normal(text, id))
        .collect();
    tokens.extend(added.iter().map(|token| Token::added(token, 0.0)));
    Ok(Content {
        file: file.to_owned(),
        tokens,
        added,
        family: Family::Bpe {
            pre,
            pre_name: pre_name.unwrap_or(pre.name()).to_owned(),
            merges,
        },
        own_ids: OwnIds::default(),
    })
}

/// A merge of parts that are no tokens could never happen, and says that vocabulary and merges are of two models.
fn check_merges(file: &str, merges: &[String], vocab: &[(String, u64)], added: &[AddedToken]) -> Result<()> {
    let mut known = HashSet::with_capacity(vocab.len() + added.len());
    known.extend(vocab.iter().map(|(text, _)| text.as_str()));
    known.extend(added.iter().map(|token| token.content.as_str()));
    let unsound = merges.par_iter().find_first(|merge| {
        let whole = |(left, right): (&str, &str)| {
            known.contains(left) && known.contains(right) && known.contains([left, right].concat().as_str())
        };
        !parts(merge).is_some_and(whole)
    });
    match unsound {
        None => Ok(()),
        Some(merge) => {
            let object = format!("{file}: merge `{}`", merge.escape_debug());
            Err(Error::mismatch(object, "two tokens that make a token", "others"))
        }
    }
}

/// The two parts of a merge. A part is at least one byte, so the first blank that can divide is at 1.
pub(super) fn parts(merge: &str) -> Option<(&str, &str)> {
    let blank = merge.bytes().skip(1).position(|b| b == b' ')? + 1;
    Some((&merge[..blank], &merge[blank + 1..]))
}

/// Pre-tokenizers of tokenizers that keep their pattern in code, by the class that `tokenizer_config.json` names.
const CLASSES: &[(&str, &str)] = &[
    ("GPT2Tokenizer", "gpt-2"),
    ("RobertaTokenizer", "roberta-bpe"),
    ("BartTokenizer", "roberta-bpe"),
    ("LongformerTokenizer", "roberta-bpe"),
    ("CodeGenTokenizer", "gpt-2"),
    ("Qwen2Tokenizer", "qwen2"),
    ("TikTokenTokenizer", "kimi-k2"),
    ("QWenTokenizer", "qwen2"),
    ("HYTokenizer", "hunyuan"),
    ("ChatGLM4Tokenizer", "chatglm-bpe"),
];

/// The pre-tokenizer of files that hold no pattern: the one asked for, or that of the class.
pub(super) fn pre_of_class(
    file: &str,
    class: Option<&str>,
    name: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<&'static PreTokenizer> {
    if let Some(name) = name {
        return pre::by_name(name);
    }
    let of_class = CLASSES.iter().find(|(c, _)| class == Some(*c));
    let known = of_class.and_then(|(_, name)| vocab::by_name(name));
    let Some(known) = known else {
        let found = class.map_or("none".to_owned(), |c| format!("`{}`", c.escape_debug()));
        let names: Vec<_> = CLASSES.iter().map(|(class, _)| *class).collect();
        let object = format!(
            "{file} holds no pattern, and `tokenizer_class` of {}",
            super::TOKENIZER_CONFIG
        );
        let expected = format!("one of `{}`", names.join("`, `"));
        return Err(Error::mismatch(
            object,
            expected,
            format!("{found}; pass `--pre NAME`"),
        ));
    };
    notes.push(format!(
        "{file} holds no pattern: pre-tokenizer `{}` by the tokenizer's class `{}`",
        known.name(),
        class.unwrap_or_default()
    ));
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_must_be_of_the_vocabulary() {
        let vocab: Vec<_> = ["a", "b", "ab", " ", "  "]
            .iter()
            .map(|t| ((*t).to_owned(), 0))
            .collect();
        for (merge, sound) in [
            ("a b", true),
            ("b a", false),
            ("ab", false),
            ("", false),
            ("   ", true),
        ] {
            let found = check_merges("f", &[merge.to_owned()], &vocab, &[]);
            assert_eq!(found.is_ok(), sound, "`{merge}`");
        }
    }
}
