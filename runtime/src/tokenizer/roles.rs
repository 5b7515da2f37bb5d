//! Tokens with a part to play: by the file's keys, by their texts, or by what the family is used to.

use gguf::Metadata;

use super::special::Kind;
use super::vocabulary::{Vocabulary, key_error};
use crate::Result;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenRole {
    /// Beginning of the sequence; `[CLS]` of WPM.
    Bos,
    /// End of the sequence.
    Eos,
    /// End of a turn.
    Eot,
    /// End of a message that another of the same turn follows.
    Eom,
    /// What has no token.
    Unknown,
    /// Between two texts; `[SEP]` of WPM.
    Separator,
    /// What fills a batch.
    Padding,
    /// What is to be guessed.
    Mask,
    /// In front of the text before the gap to be filled.
    FimPrefix,
    /// In front of the text behind the gap.
    FimSuffix,
    /// In front of the filling.
    FimMiddle,
    /// What fills a batch of gaps.
    FimPad,
    /// In front of a repository's name.
    FimRepository,
    /// Between files.
    FimSeparator,
}

/// How a role is found.
struct Row {
    role: TokenRole,
    /// Keys that give the id, without prefix and suffix; later ones are deprecated.
    keys: &'static [&'static str],
    /// Texts of the token where no key gives its id, likeliest first.
    texts: &'static [&'static str],
}

/// Texts that end a turn are control tokens whatever the file calls them.
const ENDS_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// Ends of a reply with parts of its own, and of a call in one.
const ENDS_OF_REPLY: [&str; 2] = ["<|return|>", "<|call|>"];

/// Roles behind which nothing is generated.
const ENDING_ROLES: &[TokenRole] = &[
    TokenRole::Eos,
    TokenRole::Eot,
    TokenRole::Eom,
    TokenRole::FimPad,
    TokenRole::FimRepository,
    TokenRole::FimSeparator,
];

const END_OF_MESSAGE: &str = "<|eom_id|>";

const ROWS: &[Row] = &[
    row(TokenRole::Bos, &["bos"], &[]),
    row(TokenRole::Eos, &["eos"], &[]),
    row(TokenRole::Eot, &["eot"], ENDS_OF_TURN),
    row(TokenRole::Eom, &["eom"], &[END_OF_MESSAGE]),
    row(TokenRole::Unknown, &["unknown"], &[]),
    row(TokenRole::Separator, &["seperator"], &[]),
    row(TokenRole::Padding, &["padding"], &[]),
    row(TokenRole::Mask, &["mask"], &[]),
    row(
        TokenRole::FimPrefix,
        &["fim_pre", "prefix"],
        &[
            "<|fim_prefix|>",
            "<fim_prefix>",
            "<fim-prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
    ),
    row(
        TokenRole::FimSuffix,
        &["fim_suf", "suffix"],
        &[
            "<|fim_suffix|>",
            "<fim_suffix>",
            "<fim-suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
    ),
    row(
        TokenRole::FimMiddle,
        &["fim_mid", "middle"],
        &[
            "<|fim_middle|>",
            "<fim_middle>",
            "<fim-middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
    ),
    row(
        TokenRole::FimPad,
        &["fim_pad"],
        &["<|fim_pad|>", "<fim_pad>", "<fim-pad>", "<PAD>", "[PAD]"],
    ),
    row(
        TokenRole::FimRepository,
        &["fim_rep"],
        &["<|fim_repo|>", "<|repo_name|>", "<fim_repo>", "<reponame>"],
    ),
    row(TokenRole::FimSeparator, &["fim_sep"], &["<|file_sep|>"]),
];

const fn row(role: TokenRole, keys: &'static [&'static str], texts: &'static [&'static str]) -> Row {
    Row { role, keys, texts }
}

/// Whether a text ends a turn or a message.
pub(super) fn ends_turns(text: &str) -> bool {
    text == END_OF_MESSAGE || ENDS_OF_TURN.contains(&text)
}

/// Which token plays which part.
#[derive(Debug)]
pub(super) struct Roles(Vec<(TokenRole, u32)>);

impl Roles {
    /// Finds the tokens of all roles. Those found by their text become control tokens. `defaults` are what the
    /// family takes where the file says nothing; they hold if the vocabulary is large enough.
    pub(super) fn find(
        metadata: &Metadata,
        vocabulary: &mut Vocabulary,
        defaults: &[(TokenRole, u32)],
    ) -> Result<Self> {
        check_ids(metadata, vocabulary.len())?;
        let mut found = Vec::new();
        for row in ROWS {
            let mut id = None;
            for key in row.keys {
                let given = metadata.uint(&format!("tokenizer.ggml.{key}_token_id"))?;
                // `check_ids` saw that it fits.
                id = id.or(given.map(|id| id as u32));
            }
            if id.is_none() {
                id = row.texts.iter().find_map(|text| vocabulary.id(text));
                if let Some(id) = id {
                    vocabulary.kinds[id as usize] = Kind::Control;
                }
            }
            let default = defaults.iter().find(|(role, _)| *role == row.role);
            let default = default.map(|&(_, id)| id);
            let id = id.or(default.filter(|&id| (id as usize) < vocabulary.len()));
            found.extend(id.map(|id| (row.role, id)));
        }
        Ok(Self(found))
    }

    /// The tokens that end what a model writes: those of the roles, and every control token whose text says so.
    pub(super) fn ends(&self, vocabulary: &Vocabulary) -> Vec<u32> {
        let control = |text: &&str| {
            let id = vocabulary.id(text)?;
            (vocabulary.kinds[id as usize] == Kind::Control).then_some(id)
        };
        let by_role = ENDING_ROLES.iter().filter_map(|&role| self.id(role));
        let texts = ENDS_OF_TURN.iter().chain(&ENDS_OF_REPLY).chain([&END_OF_MESSAGE]);
        let mut ends: Vec<u32> = by_role.chain(texts.filter_map(control)).collect();
        // Where these two end replies (gpt-oss), `<|end|>` stands between the parts of one.
        if ENDS_OF_REPLY.iter().all(|text| control(text).is_some()) {
            ends.retain(|&id| Some(id) != vocabulary.id("<|end|>"));
        }
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// The token of a role.
    pub(super) fn id(&self, role: TokenRole) -> Option<u32> {
        self.0.iter().find(|(r, _)| *r == role).map(|&(_, id)| id)
    }
}

/// Refuses ids of special tokens that no token has, of those too that are not used here: they are signs of a
/// vocabulary of another model.
fn check_ids(metadata: &Metadata, n_vocab: usize) -> Result<()> {
    let is_id = |key: &str| key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id");
    for (key, _) in metadata.iter().filter(|(key, _)| is_id(key)) {
        if let Some(id) = metadata.uint(key)?.filter(|&id| id >= n_vocab as u64) {
            let expected = format!("an id below the {n_vocab} tokens of the vocabulary");
            return Err(key_error(key, &expected, id.to_string()));
        }
    }
    Ok(())
}
