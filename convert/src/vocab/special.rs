//! Ids of special tokens, and which of them are put around text.

use gguf_models::hf;
use gguf_models::vocab::PreTokenizer;
use serde_json::Value as Json;

use super::TOKENIZER_CONFIG;
use super::content::OwnIds;
use super::token::Token;
use super::tokenizer::AddedToken;
use crate::Result;
use crate::error::Error;

/// The kinds in the order in which the reference converter looks for them: the name in configs, the name in
/// GGUF (`seperator` is the format's own spelling).
const KINDS: &[(&str, &str)] = &[
    ("bos", "bos"),
    ("eos", "eos"),
    ("unk", "unknown"),
    ("sep", "seperator"),
    ("pad", "padding"),
    ("cls", "cls"),
    ("mask", "mask"),
];

/// Where special tokens are looked for.
pub(super) struct Finder<'a> {
    /// Tokens that are found by their text.
    pub(super) added: &'a [AddedToken],
    /// All tokens.
    pub(super) tokens: &'a [Token],
    /// `tokenizer_config.json`.
    pub(super) config: &'a Json,
    /// Of tokenizer.json.
    pub(super) post_processor: &'a Json,
}

/// Tokens that GLM's conversations are built of; its template ends turns with two of them.
const GLM: [&str; 5] = ["[gMASK]", "<sop>", "<|user|>", "<|observation|>", "<|endoftext|>"];

impl Finder<'_> {
    /// The id of a token by its text: that of the added one, or of one of the vocabulary.
    fn id(&self, text: &str) -> Option<u64> {
        let added = self.added.iter().find(|t| t.content == text).map(|t| t.id);
        added.or_else(|| self.tokens.iter().find(|t| t.text == text).map(|t| t.id))
    }

    /// GGUF name and id of each special token: by the text in `tokenizer_config.json`, then by the id in
    /// `config.json`, then by that of the tokenizer's own file.
    pub(super) fn ids(
        &self,
        model_config: &Json,
        own: OwnIds,
        is_word_piece: bool,
        n_rows: u64,
        notes: &mut Vec<String>,
    ) -> Result<Vec<(&'static str, u32)>> {
        let mut ids: Vec<(&'static str, u32)> = Vec::new();
        for &(kind, key) in KINDS {
            let Some(text) = token_text(self.config, kind) else {
                continue;
            };
            match self.id(text) {
                Some(id) => ids.push((key, narrow(kind, id)?)),
                None => notes.push(format!(
                    "`{kind}_token` of {TOKENIZER_CONFIG} is left out: `{}` is no token",
                    text.escape_debug()
                )),
            }
        }
        for &(kind, key) in KINDS {
            let Some(id) = config_id(model_config, kind)? else {
                continue;
            };
            if ids.iter().any(|(k, _)| *k == key) {
                continue;
            }
            if id < n_rows {
                ids.push((key, narrow(kind, id)?));
            } else {
                notes.push(format!(
                    "`{kind}_token_id` of config.json is left out: {id} is no token"
                ));
            }
        }
        let own = [
            ("bos", own.bos),
            ("eos", own.eos),
            ("unknown", own.unk),
            ("padding", own.pad),
        ];
        for (key, id) in own {
            if let Some(id) = id.filter(|&id| id < n_rows && ids.iter().all(|(k, _)| *k != key)) {
                ids.push((key, narrow(key, id)?));
            }
        }
        self.conversation(&mut ids)?;
        // BERT's mark in front of a text is what loaders call BOS.
        let cls = ids.iter().find(|(key, _)| *key == "cls").map(|&(_, id)| id);
        if let Some(id) = cls.filter(|_| is_word_piece && ids.iter().all(|(key, _)| *key != "bos")) {
            ids.push(("bos", id));
        }
        Ok(ids)
    }

    /// Ends of turns that only the template knows.
    fn conversation(&self, ids: &mut Vec<(&'static str, u32)>) -> Result<()> {
        let place = |text: &str| self.added.iter().find(|t| t.content == text).map(|t| t.id);
        if let [Some(_), Some(_), Some(user), Some(observation), Some(end)] = GLM.map(place) {
            for (key, id) in [("eot", user), ("unknown", end), ("eom", observation)] {
                ids.retain(|(k, _)| *k != key);
                ids.push((key, narrow(key, id)?));
            }
        }
        Ok(())
    }

    /// Which special tokens are put around text, for those where something says so. `tokenizer_config.json` says
    /// it, or the template that the tokenizer puts text into. `pre` is that of byte-level BPE.
    pub(super) fn flags(&self, pre: Option<&PreTokenizer>) -> Vec<(&'static str, bool)> {
        flags(self.config, self.post_processor, pre)
    }
}

/// The id in `config.json`; a list, as generation takes it, says nothing of the vocabulary.
fn config_id(model_config: &Json, kind: &str) -> Result<Option<u64>> {
    let path = format!("{kind}_token_id");
    match &model_config[&path] {
        Json::Null | Json::Array(_) => Ok(None),
        // Checkpoints say so where a model has no such token.
        id if id.as_i64() == Some(-1) => Ok(None),
        id => hf::whole_number(id).map(Some).ok_or_else(|| {
            let expected = "an id: a whole number that is not negative";
            Error::mismatch(format!("config.json `{path}`"), expected, id)
        }),
    }
}

/// Settings of `tokenizer_config.json` must be of the types that are read: others would count as absent.
pub(super) fn check_types(config: &Json) -> Result<()> {
    let wrong = |key: &str, expected: &str, found: &Json| {
        Err(Error::mismatch(
            format!("{TOKENIZER_CONFIG} `{key}`"),
            expected,
            found,
        ))
    };
    if !config.is_null() && !config.is_object() {
        return Err(Error::mismatch(TOKENIZER_CONFIG, "an object of settings", config));
    }
    for &(kind, _) in KINDS {
        let (token, flag) = (format!("{kind}_token"), format!("add_{kind}_token"));
        // false stands for none in old files.
        let absent = config[&token].is_null() || config[&token] == false;
        if !absent && token_text(config, kind).is_none() {
            return wrong(
                &token,
                "a text, an object with `content`, or null",
                &config[&token],
            );
        }
        if !config[&flag].is_null() && !config[&flag].is_boolean() {
            return wrong(&flag, "true, false or null", &config[&flag]);
        }
    }
    Ok(())
}

fn narrow(kind: &str, id: u64) -> Result<u32> {
    u32::try_from(id).map_err(|_| Error::mismatch(format!("id of the {kind} token"), "a 32-bit number", id))
}

/// The token's text, given as such or as an object.
fn token_text<'a>(config: &'a Json, kind: &str) -> Option<&'a str> {
    let token = &config[format!("{kind}_token")];
    token.as_str().or_else(|| token["content"].as_str())
}

pub(super) fn flags(config: &Json, post: &Json, pre: Option<&PreTokenizer>) -> Vec<(&'static str, bool)> {
    let told = |kind: &str| config[format!("add_{kind}_token")].as_bool();
    let [mut bos, mut eos, mut sep] = [None; 3];
    match processor(post, "RobertaProcessing").or_else(|| processor(post, "TemplateProcessing")) {
        Some(p) if p["type"] == "RobertaProcessing" => [bos, eos, sep] = [Some(true); 3],
        Some(p) => {
            let single = p["single"].as_array().map_or(&[][..], Vec::as_slice);
            let is = |item: Option<&Json>, kind: &str| {
                let text = item.and_then(|i| i["SpecialToken"]["id"].as_str());
                text.is_some() && text == token_text(config, kind)
            };
            let has_special = single.iter().any(|item| item.get("SpecialToken").is_some());
            bos = (is(single.first(), "bos") || is(single.first(), "cls")).then_some(true);
            eos = (is(single.last(), "eos") || is(single.last(), "sep")).then_some(true);
            sep = has_special.then(|| separates_pairs(p, config));
        }
        None => {}
    }
    // Some pre-tokenizers put BOS in front unless the file says otherwise.
    let bos = told("bos")
        .or(bos)
        .or(pre.is_some_and(|p| p.add_bos).then_some(false));
    let flags = [
        ("bos", bos),
        ("eos", told("eos").or(eos)),
        ("sep", told("sep").or(sep)),
    ];
    flags
        .into_iter()
        .filter_map(|(kind, flag)| Some((kind, flag?)))
        .collect()
}

/// The post-processor of a type, alone or in a sequence.
fn processor<'a>(post: &'a Json, kind: &str) -> Option<&'a Json> {
    let inside = post["processors"].as_array().map_or(&[][..], Vec::as_slice);
    std::iter::once(post).chain(inside).find(|p| p["type"] == kind)
}

/// Whether the template of a pair has the separator between the two.
fn separates_pairs(template: &Json, config: &Json) -> bool {
    let Some(sep) = token_text(config, "sep") else {
        return false;
    };
    let pair = template["pair"].as_array().map_or(&[][..], Vec::as_slice);
    let second = pair.iter().position(|i| i["Sequence"]["id"] == "B").unwrap_or(0);
    pair[..second].iter().any(|i| i["SpecialToken"]["id"] == sep)
}
