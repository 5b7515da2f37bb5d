//! Whether the output's vocabulary gives the ids that the checkpoint's own tokenizer gives.
//!
//! Both run on a list of hard texts and on every added token. GGUF cannot express all that a tokenizer.json can:
//! where the ids differ, the source is run again without that (normalizers before byte-level BPE, a blank in
//! front of words of bytes, rules for blanks in front of text, added tokens that take the blanks beside them). Ids
//! that then agree are no mistake of the conversion: they are counted in a note. All others are an error.

mod growth;
mod lengths;
mod library;
mod patterns;
mod ranks;
mod source;
mod strings;

use gguf::{Metadata, listed};
use gguf_runtime::Tokenizer as GgufTokenizer;
use serde_json::{Value as Json, json};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

use super::token::{BLANK, BLANK_TEXT, TokenType};
use crate::Result;
use crate::error::Error;
pub(crate) use source::SourceTokenizer;
use source::{Built, Engine, add_tokens};

/// Ids that a message shows.
const N_IDS: usize = 48;

/// Tokens that a note names.
const N_NAMES: usize = 4;

/// Compares the source with the vocabulary of a file's metadata. Gives what the user should know.
///
/// # Errors
/// The first text whose ids differ, with both lists; a vocabulary that cannot be run, files that cannot be read. A
/// source that the library does not know is no error: that nothing was compared is said.
pub(crate) fn verify(source: &SourceTokenizer, metadata: &Metadata) -> Result<Vec<String>> {
    let (output, exact) = rayon::join(|| GgufTokenizer::from_metadata(metadata), || source.build());
    let exact = match exact {
        Err(e @ Error::Unsupported { .. }) => {
            return Ok(vec![format!(
                "the vocabulary is not compared with the checkpoint's tokenizer: {e}"
            )]);
        }
        exact => exact?,
    };
    let output = output.map_err(|e| Error::mismatch("vocabulary of the output", "one that can be run", e))?;
    let mut comparison = Comparison {
        source,
        output,
        able: None,
        metadata,
        n_texts: 0,
        n_tolerated: 0,
        example: None,
    };
    for text in strings::HARD {
        comparison.compare(&exact, text)?;
    }
    let types = token_types(metadata);
    let (mut n_unused, mut ordinary) = (0, Vec::new());
    for token in exact.added.iter().filter(|t| !t.content.is_empty()) {
        let kind = types.get(token.id as usize).copied();
        // Loaders take placeholders out of the text's reach, and control tokens that are called unused.
        if kind == Some(TokenType::Unused as i32)
            || kind == Some(TokenType::Control as i32) && token.content.contains("unused")
        {
            n_unused += 1;
        } else if kind == Some(TokenType::Normal as i32) {
            ordinary.push(shown(&token.content));
        } else {
            // In text a user's token has blanks where its name has their sign.
            let is_text = kind == Some(TokenType::UserDefined as i32);
            let name = token
                .content
                .replace(BLANK, if is_text { " " } else { BLANK_TEXT });
            for text in strings::around(&name) {
                comparison.compare(&exact, &text)?;
            }
        }
    }
    Ok(comparison.notes(n_unused, &ordinary))
}

struct Comparison<'a> {
    source: &'a SourceTokenizer,
    output: GgufTokenizer,
    /// The source without what GGUF cannot express, built when a text needs it.
    able: Option<Built>,
    metadata: &'a Metadata,
    n_texts: usize,
    n_tolerated: usize,
    /// The first text that differs by what GGUF cannot express.
    example: Option<String>,
}

impl Comparison<'_> {
    fn compare(&mut self, exact: &Built, text: &str) -> Result<()> {
        let failed = |e| Error::mismatch(format!("vocabulary of the output on `{}`", shown(text)), "ids", e);
        let found = self.output.encode(text, false, true).map_err(failed)?;
        let expected = exact.encode(text)?;
        self.n_texts += 1;
        if found == expected {
            return Ok(());
        }
        if self.able.is_none() {
            self.able = without_extras(exact, self.metadata)?;
        }
        if let Some(able) = &self.able
            && able.encode(text)? == found
        {
            self.n_tolerated += 1;
            self.example.get_or_insert_with(|| shown(text));
            return Ok(());
        }
        let object = format!("ids of `{}` by the output's vocabulary", shown(text));
        let expected = format!("{} as `{}` gives", ids(&expected), self.source.path.display());
        Err(Error::mismatch(object, expected, ids(&found)))
    }

    fn notes(self, n_unused: usize, ordinary: &[String]) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(example) = self.example {
            notes.push(format!(
                "{} of {} texts give other ids than the checkpoint's tokenizer, as GGUF has no form for its \
                 normalizer or its rules for blanks; the first: `{example}`",
                self.n_tolerated, self.n_texts
            ));
        }
        if n_unused > 0 {
            notes.push(format!("{n_unused} unused tokens are not looked for in text"));
        }
        if !ordinary.is_empty() {
            notes.push(format!(
                "found by their text in the checkpoint's tokenizer, ordinary tokens in the output, as the reference \
                 converter has them: `{}`",
                listed(ordinary, N_NAMES, "`, `")
            ));
        }
        notes
    }
}

/// A text, or the start of a long one.
fn shown(text: &str) -> String {
    const MOST: usize = 400;
    let start = &text[..text.floor_char_boundary(MOST)];
    let more = if start.len() < text.len() { ".." } else { "" };
    format!("{}{more}", start.escape_debug())
}

fn ids(ids: &[u32]) -> String {
    let more = if ids.len() > N_IDS { ", .." } else { "" };
    let shown: Vec<_> = ids.iter().take(N_IDS).map(u32::to_string).collect();
    format!("[{}{more}]", shown.join(", "))
}

fn token_types(metadata: &Metadata) -> Vec<i32> {
    match metadata.array("tokenizer.ggml.token_type") {
        Ok(Some(gguf::Array::I32(types))) => types.clone(),
        _ => Vec::new(),
    }
}

/// The source's tokenizer with only those steps that GGUF has keys for. `None` where it has no steps.
fn without_extras(exact: &Built, metadata: &Metadata) -> Result<Option<Built>> {
    let Engine::Library { tokenizer, .. } = &exact.engine else {
        return Ok(None);
    };
    let failed = |e| Error::mismatch("steps of the source tokenizer", "ones that can be run", e);
    let section = |json: serde_json::Result<Json>| json.map_err(|e| Error::mismatch("steps", "JSON", e));
    let normalizer = section(serde_json::to_value(tokenizer.get_normalizer()))?;
    let mut pre = section(serde_json::to_value(tokenizer.get_pre_tokenizer()))?;
    let flag = |key: &str, default: bool| -> Result<bool> {
        Ok(metadata
            .bool(&format!("tokenizer.ggml.{key}"))?
            .unwrap_or(default))
    };
    let blank = BLANK_TEXT;
    let escape = json!({"type": "Replace", "pattern": {"String": " "}, "content": blank});
    let prepend = json!({"type": "Prepend", "prepend": blank});
    let (steps, pre) = match metadata.string("tokenizer.ggml.model")? {
        Some("gpt2") => {
            no_prefix_space(&mut pre);
            (None, Some(pre))
        }
        Some("llama") => {
            let prefix = flag("add_space_prefix", true)?.then_some(prepend);
            (Some(prefix.into_iter().chain([escape]).collect()), None)
        }
        Some("t5") => {
            let tables = super::steps(&normalizer, "normalizers").filter(|s| s["type"] == "Precompiled");
            let mut steps: Vec<Json> = tables.cloned().collect();
            if flag("remove_extra_whitespaces", false)? {
                steps.push(json!({"type": "Strip", "strip_left": true, "strip_right": true}));
                steps.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
            }
            steps.extend(flag("add_space_prefix", false)?.then_some(prepend));
            steps.push(escape);
            (Some(steps), None)
        }
        _ => {
            let steps = json!({
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": flag("normalizer.strip_accents", true)?,
                "lowercase": flag("normalizer.lowercase", true)?,
            });
            (Some(vec![steps]), Some(json!({"type": "BertPreTokenizer"})))
        }
    };
    let mut able = Tokenizer::new(tokenizer.get_model().clone());
    let steps = steps.map(|steps: Vec<Json>| json!({"type": "Sequence", "normalizers": steps}));
    set_steps(&mut able, steps, pre).map_err(failed)?;
    let types = token_types(metadata);
    let mut added = exact.added.clone();
    for token in &mut added {
        // These are looked for in text as it comes, with its blanks.
        if types.get(token.id as usize) == Some(&(TokenType::UserDefined as i32)) {
            token.content = token.content.replace(BLANK, " ");
        }
    }
    add_tokens(&mut able, &added).map_err(failed)?;
    Ok(Some(Built::library(able, added)))
}

/// Replaces the steps before the model.
fn set_steps(
    tokenizer: &mut Tokenizer,
    normalizer: Option<Json>,
    pre: Option<Json>,
) -> tokenizers::Result<()> {
    if let Some(steps) = normalizer {
        tokenizer.with_normalizer(Some(serde_json::from_value::<NormalizerWrapper>(steps)?))?;
    }
    if let Some(steps) = pre.filter(|steps| !steps.is_null()) {
        tokenizer.with_pre_tokenizer(Some(serde_json::from_value::<PreTokenizerWrapper>(steps)?));
    }
    Ok(())
}

fn no_prefix_space(step: &mut Json) {
    if step["type"] == "ByteLevel" {
        step["add_prefix_space"] = json!(false);
    }
    for step in step["pretokenizers"].as_array_mut().into_iter().flatten() {
        no_prefix_space(step);
    }
}
