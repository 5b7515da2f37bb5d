//! Recognising the pre-tokenizer by its structure.

use gguf::listed;
use gguf_models::vocab::{self, PreTokenizer};
use serde_json::Value as Json;

use super::tokenizer::TokenizerJson;
use super::{TOKENIZER, steps};
use crate::Result;
use crate::error::{Error, quoted};

/// Punctuation as the tokenizers library has it: Unicode's, and the ASCII symbols.
const PUNCTUATION: &str = r"[\p{P}\$\+<=>\^~\|`]+";

/// Steps and patterns that a message names.
const N_STEPS: usize = 8;

/// What a pre-tokenizer section says.
#[derive(Debug, Default)]
struct Section {
    /// Regular expressions in order.
    patterns: Vec<String>,
    /// Whether words become bytes.
    byte_level: bool,
    /// Whether a blank is put in front of the text.
    prefix_space: bool,
    /// Steps that regular expressions cannot stand for.
    unknown: Vec<String>,
}

/// Finds the pre-tokenizer, or takes the named one.
pub(super) fn recognise(
    tokenizer: &TokenizerJson,
    name: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<&'static PreTokenizer> {
    let mut section = Section::default();
    section.read(&tokenizer.pre_tokenizer);
    let patterns: Vec<&str> = section.patterns.iter().map(String::as_str).collect();
    let known = if section.unknown.is_empty() {
        best(&patterns, tokenizer)
    } else {
        None
    };
    let Some(name) = name else {
        notes.extend(differences(&section, tokenizer));
        return known.ok_or_else(|| unknown(&section, &patterns));
    };
    let named = by_name(name)?;
    if let Some(known) = known.filter(|k| k.patterns != named.patterns) {
        notes.push(format!(
            "the patterns of {TOKENIZER} are those of `{}`, not of `{name}`",
            known.name()
        ));
    }
    Ok(named)
}

/// The pre-tokenizer that `--pre` names.
pub(super) fn by_name(name: &str) -> Result<&'static PreTokenizer> {
    vocab::by_name(name).ok_or_else(|| {
        let near = near_names(name).join("`, `");
        let expected = format!("a name that `--help` lists, the nearest are `{near}`");
        Error::argument("--pre", expected, name)
    })
}

/// Names that a message offers for one that is unknown.
const N_NEAR: usize = 3;

/// The help of `--pre`: what it does, and every name it takes.
pub(crate) fn help() -> String {
    let names: Vec<_> = vocab::all().iter().map(PreTokenizer::name).collect();
    format!(
        "Pre-tokenizer to name in the output, where that of tokenizer.json is not recognised. One of: {}",
        names.join(", ")
    )
}

/// The known names that share the most pairs of letters with one that is not known.
fn near_names(name: &str) -> Vec<&'static str> {
    let pairs = |text: &str| -> Vec<[u8; 2]> {
        let bytes = text.to_ascii_lowercase().into_bytes();
        bytes.windows(2).map(|w| [w[0], w[1]]).collect()
    };
    let wanted = pairs(name);
    let distance = |other: &str| {
        let theirs = pairs(other);
        let shared = theirs.iter().filter(|p| wanted.contains(p)).count();
        (wanted.len() + theirs.len()).abs_diff(2 * shared)
    };
    let mut names: Vec<_> = vocab::all().iter().map(PreTokenizer::name).collect();
    names.sort_by_key(|n| distance(n));
    names.truncate(N_NEAR);
    names
}

/// Of those with the same patterns the one that treats whole words the same way.
fn best(patterns: &[&str], tokenizer: &TokenizerJson) -> Option<&'static PreTokenizer> {
    let ignore_merges = tokenizer.model.ignore_merges.unwrap_or(false);
    vocab::all_by_patterns(patterns)
        .find(|p| p.ignore_merges == ignore_merges)
        .or_else(|| vocab::by_patterns(patterns))
}

/// Whether words become bytes: the pre-tokenizer says so, or else the decoder.
pub(super) fn is_byte_level(tokenizer: &TokenizerJson) -> bool {
    let mut section = Section::default();
    section.read(&tokenizer.pre_tokenizer);
    section.byte_level || steps(&tokenizer.decoder, "decoders").any(|step| step["type"] == "ByteLevel")
}

/// The refusal of BPE over characters that are neither bytes nor have blanks for their sign.
pub(super) fn no_byte_level(tokenizer: &TokenizerJson) -> Error {
    let kinds: Vec<_> = steps(&tokenizer.pre_tokenizer, "pretokenizers")
        .map(|step| quoted(step["type"].as_str().unwrap_or_default()))
        .collect();
    let object = format!("{TOKENIZER} `pre_tokenizer`");
    let expected = "a step `ByteLevel`, or blanks written as their sign; no other BPE has a form in GGUF";
    let found = if kinds.is_empty() {
        "no such step".to_owned()
    } else {
        listed(&kinds, N_STEPS, ", ")
    };
    Error::mismatch(object, expected, found)
}

/// What the output will do otherwise than the checkpoint's tokenizer.
fn differences(section: &Section, tokenizer: &TokenizerJson) -> Vec<String> {
    let mut notes = Vec::new();
    if section.prefix_space {
        notes.push(format!(
            "{TOKENIZER} puts a blank in front of text, the output does not"
        ));
    }
    let kinds: Vec<_> = steps(&tokenizer.normalizer, "normalizers")
        .filter_map(|step| step["type"].as_str())
        .filter(|kind| *kind != "NFC")
        .map(quoted)
        .collect();
    if !kinds.is_empty() {
        let kinds = listed(&kinds, N_STEPS, ", ");
        notes.push(format!(
            "{TOKENIZER} normalizes text with {kinds}, the output does not"
        ));
    }
    notes
}

fn unknown(section: &Section, patterns: &[&str]) -> Error {
    let near = vocab::nearest(patterns);
    let mut found: Vec<String> = patterns.iter().map(|p| quoted(p)).collect();
    found.extend(section.unknown.iter().map(|step| format!("step {step}")));
    let expected = format!(
        "the patterns of a known pre-tokenizer, nearest `{}`",
        near.patterns.join("` then `")
    );
    let found = format!(
        "{}; pass `--pre {}` if that cuts text alike",
        listed(&found, N_STEPS, " then "),
        near.name()
    );
    Error::mismatch(format!("{TOKENIZER} `pre_tokenizer`"), expected, found)
}

impl Section {
    fn read(&mut self, step: &Json) {
        let kind = step["type"].as_str().unwrap_or("none");
        let flag = |name: &str, default: bool| step[name].as_bool().unwrap_or(default);
        match kind {
            "Sequence" => {
                for step in step["pretokenizers"].as_array().into_iter().flatten() {
                    self.read(step);
                }
            }
            "Split" => match split_pattern(step) {
                Some(pattern) => self.patterns.push(pattern),
                None => self
                    .unknown
                    .push(format!("`Split` with {}", quoted(&step.to_string()))),
            },
            "ByteLevel" => {
                self.byte_level = true;
                self.prefix_space |= flag("add_prefix_space", true);
                if flag("use_regex", true) {
                    self.patterns.push(vocab::GPT2_WORDS.to_owned());
                }
            }
            "Digits" if flag("individual_digits", false) => self.patterns.push(r"\p{N}".to_owned()),
            "Digits" => self.patterns.push(r"\p{N}+".to_owned()),
            "Punctuation" if step["behavior"] == "Contiguous" => self.patterns.push(PUNCTUATION.to_owned()),
            other => self.unknown.push(quoted(other)),
        }
    }
}

/// The pattern of a split that keeps everything: what matches and what lies between.
fn split_pattern(step: &Json) -> Option<String> {
    let invert = step["invert"].as_bool().unwrap_or(false);
    let keeps = match step["behavior"].as_str()? {
        "Isolated" => true,
        // Only the matches stay; the patterns that are used so leave nothing between.
        "Removed" => invert,
        _ => false,
    };
    let pattern = &step["pattern"];
    let regex = pattern["Regex"].as_str().map(str::to_owned);
    regex
        .or_else(|| pattern["String"].as_str().map(escape))
        .filter(|_| keeps)
}

/// A text as a regular expression that matches it.
fn escape(text: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$".contains(c);
    text.chars()
        .flat_map(|c| special(c).then_some('\\').into_iter().chain(std::iter::once(c)))
        .collect()
}
