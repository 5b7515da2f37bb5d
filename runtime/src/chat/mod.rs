//! Conversations as the text that a model was trained on, by the Jinja template in its file.
//!
//! Templates are run the way Hugging Face's `apply_chat_template` runs them: blocks are trimmed, loops can be
//! left, strings have Python's methods, `raise_exception`, `strftime_now` and a `tojson` that escapes nothing
//! are there, and `generation` blocks are passed through. A template cannot reach anything but the values that
//! it is given, and the work and memory that it may use are bounded: by steps ([`FUEL`]), and, for what the engine does
//! not count as steps, by time ([`SECONDS`]).

mod date;
mod json;

use std::sync::mpsc;
use std::time::Duration;

use gguf::{Metadata, key};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, ErrorKind, State, UndefinedBehavior};
use serde::Serialize;

use crate::{Error, Result, TokenRole, Tokenizer};

/// Steps that any template may take; each pays for 64 bytes of data, too.
const FUEL: u64 = 2_000_000;
/// Bytes of JSON that a step pays for while they are written.
const JSON_PER_STEP: u64 = 8;
/// Further steps for each byte of the messages.
const FUEL_PER_BYTE: u64 = 8;

/// The format of the `im_start` family, for files without a template. Its name is that of llama.cpp.
const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                      {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// A chat template with the special tokens of its model.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    /// `bos_token` and the like, by the names that templates use.
    tokens: Vec<(&'static str, String)>,
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

impl ChatTemplate {
    /// Reads a template. The special tokens that it may use are those of `tokenizer`.
    ///
    /// # Errors
    /// A text that is no template, with the line: [`Error::Template`].
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let text = |role| tokenizer.role(role).and_then(|id| tokenizer.token_text(id));
        let tokens = TOKENS
            .iter()
            .filter_map(|&(name, role)| Some((name, text(role)?.to_owned())));
        let template = Self {
            env: environment(),
            source: without_generation_blocks(source),
            tokens: tokens.collect(),
        };
        if source.len() > MAX_SOURCE {
            return Err(Error::Template {
                place: "".into(),
                what: format!("expected at most {MAX_SOURCE} bytes, found {}", source.len()).into(),
            });
        }
        let (env, read) = (template.env.clone(), template.source.clone());
        aside(source.len(), 0, SECONDS, move || {
            env.template_from_str(&read).map(|_| ())
        })?;
        Ok(template)
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
        Self::new(source, tokenizer).map(Some)
    }

    /// The conversation as text, ending with the opening of an answer if `add_generation_prompt`. `more` are
    /// further values for the template.
    ///
    /// # Errors
    /// What the template itself refuses, with its words; a template that does not end, or not within [`SECONDS`] for
    /// each [`FUEL`] steps that it may take: what it was at then goes on in a thread of its own until that ends.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        more: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<String> {
        let n_bytes: usize = messages.iter().map(|m| m.role.len() + m.content.len()).sum();
        let fuel = (n_bytes as u64)
            .saturating_mul(FUEL_PER_BYTE)
            .saturating_add(FUEL);
        let mut values: Vec<(&str, Value)> = self
            .tokens
            .iter()
            .map(|(name, text)| (*name, Value::from(text.as_str())))
            .collect();
        values.extend([
            ("messages", Serde(messages).into()),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
            ("add_generation_prompt", add_generation_prompt.into()),
        ]);
        values.extend(
            more.iter()
                .map(|(name, v)| (name.as_str(), Value::from(Serde(v)))),
        );
        let values = Value::from_pairs(values);
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let source = self.source.clone();
        let seconds = SECONDS.saturating_mul((fuel / FUEL).max(1));
        aside(source.len(), fuel, seconds, move || {
            env.template_from_str(&source)?.render(values)
        })
    }
}

/// Bytes of a template; those of real models have 20,000 at most.
const MAX_SOURCE: usize = 1 << 17;
/// Address space for each byte of a template, more than the parser was seen to take: it calls itself for every operator of
/// a chain.
const STACK_PER_BYTE: u64 = 1 << 12;
/// Address space for each step. A list in a list takes ten steps at least, and what walks one calls itself for each level,
/// with 500 bytes at most.
const STACK_PER_STEP: u64 = 96;
/// Address space for all else: macros that call themselves, as deep as minijinja lets them.
const STACK: u64 = 8 << 20;
/// Seconds for [`FUEL`] steps, which take less than one. The text and the hash of a list are made in one step, and forty
/// steps make a list in which one other is found 2^40 times.
const SECONDS: u64 = 10;

/// Does what reads a template of `n_bytes`, or runs it for `fuel` steps, in a thread with a stack that it cannot use up, and
/// for `seconds` at most.
fn aside<T: Send + 'static>(
    n_bytes: usize,
    fuel: u64,
    seconds: u64,
    work: impl FnOnce() -> Result<T, minijinja::Error> + Send + 'static,
) -> Result<T> {
    let refused = |what: String| Error::Template {
        place: "".into(),
        what: what.into(),
    };
    let stack = (n_bytes as u64)
        .saturating_mul(STACK_PER_BYTE)
        .saturating_add(fuel.saturating_mul(STACK_PER_STEP))
        .saturating_add(STACK);
    let (send, done) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .stack_size(usize::try_from(stack).unwrap_or(usize::MAX))
        // Nobody waits for it any more where it cannot be sent.
        .spawn(move || drop(send.send(work())))
        .map_err(|e| refused(format!("no thread to read it: {e}")))?;
    match done.recv_timeout(Duration::from_secs(seconds)) {
        Ok(done) => done.map_err(|e| told(&e)),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(refused(format!(
            "it takes more than {seconds} seconds, as no conversation does"
        ))),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it ends behind what it sends"),
        },
    }
}

/// What a template finds around it.
fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    env.set_syntax(syntax.expect("the usual delimiters"));
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_function(
        "raise_exception",
        |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        },
    );
    env.add_function("strftime_now", |format: &str| date::now(format));
    env.add_filter(
        "tojson",
        |state: &State<'_, '_>, value: Value, options: Kwargs| {
            let steps = state.fuel_levels().map_or(FUEL, |(_, left)| left);
            let text = json::write(&value, &options, steps.saturating_mul(JSON_PER_STEP))?;
            options.assert_all_used()?;
            Ok::<_, minijinja::Error>(Value::from_safe_string(text))
        },
    );
    env
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

fn told(e: &minijinja::Error) -> Error {
    let place = e.line().map_or(String::new(), |n| format!(", line {n}"));
    let what = match e.kind() {
        ErrorKind::OutOfFuel => "it takes more steps or memory than any conversation needs".to_owned(),
        kind => e.detail().map_or_else(|| kind.to_string(), str::to_owned),
    };
    // A cause names the line where it went wrong.
    let cause = std::error::Error::source(e).map_or(String::new(), |c| format!(": {c}"));
    Error::Template {
        place: place.into(),
        what: format!("{what}{cause}").into(),
    }
}

#[cfg(test)]
mod tests;
