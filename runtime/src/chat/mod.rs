//! Conversations as the text that a model was trained on, by the Jinja template in its file.
//!
//! Templates are run the way Hugging Face's `apply_chat_template` runs them: blocks are trimmed, loops can be
//! left, strings have Python's methods, `raise_exception`, `strftime_now` and a `tojson` that escapes nothing
//! are there, and `generation` blocks are passed through. A template cannot reach anything but the values that
//! it is given, and its steps are bounded. What a single step may cost is not: a namespace that holds itself has a text
//! without end, and of a list in which each has the last one twice forty are enough. So programs run templates in a
//! process of their own, whose memory and time are limited: [`Interpreter::Apart`].

mod apart;
mod date;
mod engine;
mod json;

use std::borrow::Cow;
use std::path::PathBuf;

use gguf::{Metadata, key};
use serde::{Deserialize, Serialize};

pub use apart::interpret;

use crate::{Error, Result, TokenRole, Tokenizer};

/// The format of the `im_start` family, for files without a template. Its name is that of llama.cpp.
const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                      {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }
}

/// Who runs a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interpreter {
    /// The caller. A hostile template can end the process by its stack, and take any time and memory.
    Here,
    /// A process of this program, which begins with [`interpret`].
    Apart(PathBuf),
}

impl Interpreter {
    /// A process of the program that is running, whose `main` begins with [`interpret`].
    ///
    /// # Errors
    /// If the system cannot say which file that is.
    pub fn own() -> std::io::Result<Self> {
        // The link leads to the file also where its name has gone to another one since.
        let link = PathBuf::from("/proc/self/exe");
        if link.exists() {
            return Ok(Self::Apart(link));
        }
        std::env::current_exe().map(Self::Apart)
    }

    fn ask(&self, request: &Request<'_>) -> Result<String> {
        let answer = match self {
            Self::Here => engine::answer(request),
            Self::Apart(program) => apart::ask(program, request),
        };
        answer.map_err(|refusal| {
            if refusal.is_of_machine {
                return Error::Settings(format!("chat template: {}", refusal.what).into());
            }
            Error::Template {
                place: refusal.place.into(),
                what: refusal.what.into(),
            }
        })
    }
}

/// What an interpreter is asked: for the text of a conversation, or whether a template can be read.
#[derive(Serialize, Deserialize)]
struct Request<'a> {
    source: Cow<'a, str>,
    conversation: Option<Conversation<'a>>,
}

#[derive(Serialize, Deserialize)]
struct Conversation<'a> {
    /// `bos_token` and the like, by the names that templates use.
    tokens: Cow<'a, [(String, String)]>,
    messages: Cow<'a, [Message]>,
    add_generation_prompt: bool,
    /// Further values.
    more: Cow<'a, serde_json::Map<String, serde_json::Value>>,
}

/// Why there is no text.
#[derive(Debug, Serialize, Deserialize)]
struct Refusal {
    /// `, line 3`, where it is known.
    place: String,
    what: String,
    /// Whether the machine could not read it, whatever it is.
    is_of_machine: bool,
}

impl Refusal {
    fn new(what: String) -> Self {
        Self {
            place: String::new(),
            what,
            is_of_machine: false,
        }
    }

    fn of_machine(what: String) -> Self {
        Self {
            is_of_machine: true,
            ..Self::new(what)
        }
    }
}

/// A chat template with the special tokens of its model.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    interpreter: Interpreter,
    tokens: Vec<(String, String)>,
}

/// Special tokens that templates may use.
const TOKENS: &[(&str, TokenRole)] = &[
    ("bos_token", TokenRole::Bos),
    ("eos_token", TokenRole::Eos),
    ("unk_token", TokenRole::Unknown),
    ("pad_token", TokenRole::Padding),
    ("sep_token", TokenRole::Separator),
    ("mask_token", TokenRole::Mask),
];

/// Bytes of a template; those of real models have 20,000 at most.
const MAX_SOURCE: usize = 1 << 17;

impl ChatTemplate {
    /// Reads a template. The special tokens that it may use are those of `tokenizer`.
    ///
    /// # Errors
    /// A text that is no template, with the line: [`Error::Template`]; a machine that has no process or thread to read it:
    /// [`Error::Settings`].
    pub fn new(source: &str, tokenizer: &Tokenizer, interpreter: Interpreter) -> Result<Self> {
        if source.len() > MAX_SOURCE {
            return Err(Error::Template {
                place: "".into(),
                what: format!("expected at most {MAX_SOURCE} bytes, found {}", source.len()).into(),
            });
        }
        let text = |role| tokenizer.role(role).and_then(|id| tokenizer.token_text(id));
        let tokens = TOKENS
            .iter()
            .filter_map(|&(name, role)| Some((name.to_owned(), text(role)?.to_owned())));
        let source = without_generation_blocks(source);
        interpreter.ask(&Request {
            source: source.as_str().into(),
            conversation: None,
        })?;
        Ok(Self {
            source,
            interpreter,
            tokens: tokens.collect(),
        })
    }

    /// The template of a file: the usual one, or that of a name, which is a named one of the file, else `chatml`,
    /// which needs no file. `None` if the file has no template and none is named.
    ///
    /// # Errors
    /// A name that is not known, with those that are; as [`Self::new`].
    pub fn from_metadata(
        metadata: &Metadata,
        name: Option<&str>,
        tokenizer: &Tokenizer,
        interpreter: Interpreter,
    ) -> Result<Option<Self>> {
        let usual = metadata.string(key::CHAT_TEMPLATE)?;
        let source = match name {
            None => match usual {
                None => return Ok(None),
                Some(source) => source,
            },
            Some(name) => {
                let named = metadata.string(&format!("{}.{name}", key::CHAT_TEMPLATE))?;
                let usual = usual.filter(|_| name == "default");
                let built_in = (name == "chatml").then_some(CHATML);
                named
                    .or(usual)
                    .or(built_in)
                    .ok_or_else(|| unknown(metadata, name))?
            }
        };
        Self::new(source, tokenizer, interpreter).map(Some)
    }

    /// The conversation as text, ending with the opening of an answer if `add_generation_prompt`. `more` are
    /// further values for the template.
    ///
    /// # Errors
    /// What the template itself refuses, with its words; a template that does not end, or takes more than a conversation
    /// may: [`Error::Template`].
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        more: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<String> {
        self.interpreter.ask(&Request {
            source: self.source.as_str().into(),
            conversation: Some(Conversation {
                tokens: self.tokens.as_slice().into(),
                messages: messages.into(),
                add_generation_prompt,
                more: Cow::Borrowed(more),
            }),
        })
    }
}

/// `{% generation %}` marks what a trainer learns from; for rendering it is a block that is always taken.
fn without_generation_blocks(source: &str) -> String {
    let mark = regex::Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("a legal pattern");
    let block = |found: &regex::Captures<'_>| {
        let word = if found.get(2).is_some() {
            "endif"
        } else {
            "if true"
        };
        format!("{{%{} {word} {}%}}", &found[1], &found[3])
    };
    mark.replace_all(source, block).into_owned()
}

fn unknown(metadata: &Metadata, name: &str) -> Error {
    let prefix = format!("{}.", key::CHAT_TEMPLATE);
    let mut known: Vec<&str> = metadata
        .iter()
        .filter_map(|(key, _)| key.strip_prefix(&prefix))
        .collect();
    if metadata.contains(key::CHAT_TEMPLATE) {
        known.push("default");
    }
    known.push("chatml");
    Error::Settings(
        format!(
            "chat template `{name}`: expected a template or one of the names {}",
            known
                .iter()
                .map(|k| format!("`{k}`"))
                .collect::<Vec<_>>()
                .join(", ")
        )
        .into(),
    )
}

#[cfg(test)]
mod tests;
