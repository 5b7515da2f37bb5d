//! How long a text can become on its way through a tokenizer's steps.

use serde_json::{Map, Value as Json};

use crate::vocab::tokenizer::AddedToken;

/// Bytes that may come of one byte of text. `SentencePiece` models with a table of replacements come to a hundred.
const MAX_TIMES: u64 = 256;

/// Bytes that may be added to each text: real steps add one blank.
const MAX_PLUS: u64 = 4096;

/// Bytes that all added tokens together may always become.
const ALWAYS: u64 = 4 << 20;

/// Bytes that may come of one byte of theirs where more than [`ALWAYS`] do.
const MAX_TIMES_MANY: u64 = 16;

/// A bound of the bytes that `n` bytes become: `times * n + plus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    times: u64,
    plus: u64,
}

impl Growth {
    pub(super) const NONE: Self = Self { times: 1, plus: 0 };

    pub(super) fn times(times: u64) -> Self {
        Self { times, plus: 0 }
    }

    /// One after the other.
    pub(super) fn then(self, next: Self) -> Self {
        Self {
            times: self.times.saturating_mul(next.times),
            plus: self.plus.saturating_mul(next.times).saturating_add(next.plus),
        }
    }

    /// By what a step itself does, tables of replacements and steps inside of it left out.
    pub(super) fn by_keys(step: &Map<String, Json>) -> Self {
        let length = |key: &str| {
            step.get(key)
                .and_then(Json::as_str)
                .map_or(0, |text| text.len() as u64)
        };
        let mut growth = Self::times(by_type(step));
        growth.plus = length("prepend");
        if let (Some(pattern), content @ 1..) = (step.get("pattern"), length("content")) {
            let replaced = match pattern["String"].as_str().map_or(0, str::len) as u64 {
                // The empty string is found in front of every character and at the end.
                0 => Self {
                    times: 1 + content,
                    plus: content,
                },
                n => Self::times(content.div_ceil(n).max(1)),
            };
            growth = growth.then(replaced);
        }
        growth
    }

    fn of(self, n: u64) -> u64 {
        self.times.saturating_mul(n).saturating_add(self.plus)
    }
}

/// Bytes that come of a byte at most; forms of Unicode by the table of UAX #15.
fn by_type(step: &Map<String, Json>) -> u64 {
    let Some(kind) = step.get("type").and_then(Json::as_str) else {
        return if step.contains_key("clean_text") { 12 } else { 1 };
    };
    match kind {
        "Sequence" | "Precompiled" | "Replace" | "Prepend" | "Strip" | "StripAccents" | "Nmt" | "Split"
        | "Digits" | "Punctuation" | "Whitespace" | "WhitespaceSplit" | "BertPreTokenizer"
        | "CharDelimiterSplit" | "UnicodeScripts" | "FixedLength" => 1,
        "Lowercase" => 2,
        "NFC" | "NFD" => 3,
        "NFKC" | "NFKD" => 11,
        // A letter of two bytes for a byte; behind a blank where words get one.
        "ByteLevel" if step.get("add_prefix_space") == Some(&Json::Bool(false)) => 2,
        "ByteLevel" => 4,
        // The sign in place of a blank, or in front of a word.
        "Metaspace" => {
            let sign = step.get("replacement").and_then(Json::as_str);
            1 + sign.map_or(4, |sign| sign.len() as u64)
        }
        // That of BERT decomposes, changes the case and puts blanks around ideographs; no known one does more.
        _ => 12,
    }
}

/// Refuses steps by which texts become too long: `normalized` before words are cut, `whole` at the end. All added tokens
/// are normalized when they are read.
pub(super) fn check_growth(added: &[AddedToken], normalized: Growth, whole: Growth) -> Result<(), String> {
    if whole.times > MAX_TIMES || whole.plus > MAX_PLUS {
        return Err(format!(
            "expected steps that make at most {MAX_TIMES} bytes of one and add at most {MAX_PLUS} bytes to a text, \
             found some that can make {} and add {}",
            whole.times, whole.plus
        ));
    }
    let n: u64 = added.iter().map(|token| token.content.len() as u64).sum();
    let of_all = Growth {
        plus: normalized.plus.saturating_mul(added.len() as u64),
        ..normalized
    };
    let (grown, most) = (of_all.of(n), ALWAYS.max(n.saturating_mul(MAX_TIMES_MANY)));
    if grown > most {
        return Err(format!(
            "expected steps that make at most {most} bytes of the {n} of all added tokens, found some that can make {grown}"
        ));
    }
    Ok(())
}
