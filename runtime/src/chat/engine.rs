//! The engine, set up as templates expect it, within bounds of steps and stack.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, ErrorKind, State, UndefinedBehavior};

use super::{Conversation, Refusal, Request, date, json};

/// Steps that any template may take; each pays for 64 bytes of data, too.
pub(super) const FUEL: u64 = 2_000_000;
/// Further steps for each byte of the messages.
const FUEL_PER_BYTE: u64 = 8;
/// Bytes of JSON that a step pays for while they are written.
const JSON_PER_STEP: u64 = 8;
/// Address space for each byte of a template, more than the parser was seen to take: it calls itself for every operator of
/// a chain.
const STACK_PER_BYTE: u64 = 1 << 12;
/// Address space for each step. A list in a list takes ten steps at least, and what walks one calls itself for each level,
/// with 500 bytes at most.
const STACK_PER_STEP: u64 = 96;
/// Address space for all else: macros that call themselves, as deep as minijinja lets them.
const STACK: u64 = 8 << 20;
/// Address space at most: that of ten million steps.
const MAX_STACK: u64 = 1 << 30;
/// Bytes of text that a step pays for in the end.
const TEXT_PER_STEP: u64 = 16;
/// Characters of a template's own words in an error.
const MAX_WORDS: usize = 1000;

impl Request<'_> {
    /// Steps that it may take.
    pub(super) fn fuel(&self) -> u64 {
        let Some(conversation) = &self.conversation else {
            return 0;
        };
        let messages = conversation.messages.iter();
        let n_bytes: usize = messages.map(|m| m.role.len() + m.content.len()).sum();
        (n_bytes as u64)
            .saturating_mul(FUEL_PER_BYTE)
            .saturating_add(FUEL)
    }

    /// Bytes of stack that it may need.
    pub(super) fn stack(&self) -> u64 {
        (self.source.len() as u64)
            .saturating_mul(STACK_PER_BYTE)
            .saturating_add(self.fuel().saturating_mul(STACK_PER_STEP))
            .saturating_add(STACK)
            .min(MAX_STACK)
    }

    /// Bytes that its text may have.
    pub(super) fn max_text(&self) -> u64 {
        self.fuel().saturating_mul(TEXT_PER_STEP)
    }
}

/// The text that is asked for; an empty one for a template that can be read.
pub(super) fn answer(request: &Request<'_>) -> Result<String, Refusal> {
    let work = || {
        let mut env = environment();
        env.set_fuel(Some(request.fuel()));
        let template = env.template_from_str(&request.source)?;
        match &request.conversation {
            None => Ok(String::new()),
            Some(conversation) => template.render(values(conversation)),
        }
    };
    // A stack that no chain of operators and no value can use up, unless it holds itself.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(usize::try_from(request.stack()).unwrap_or(usize::MAX))
            .spawn_scoped(scope, work)
            .map_err(|e| Refusal::of_machine(format!("no thread to read it: {e}")))?;
        match thread.join() {
            Ok(Ok(text)) if text.len() as u64 > request.max_text() => {
                Err(told(&minijinja::Error::from(ErrorKind::OutOfFuel)))
            }
            Ok(done) => done.map_err(|e: minijinja::Error| told(&e)),
            Err(_) => Err(Refusal::new(BROKEN.to_owned())),
        }
    })
}

/// Of a template on which the engine panics.
const BROKEN: &str = "its interpreter has a fault that it runs into";

fn values(conversation: &Conversation<'_>) -> Value {
    let tokens = conversation.tokens.iter();
    let mut values: Vec<(&str, Value)> = tokens
        .map(|(name, text)| (name.as_str(), Value::from(text.as_str())))
        .collect();
    values.extend([
        ("messages", Serde(&conversation.messages).into()),
        ("tools", Value::from(())),
        ("documents", Value::from(())),
        ("add_generation_prompt", conversation.add_generation_prompt.into()),
    ]);
    let more = conversation.more.iter();
    values.extend(more.map(|(name, v)| (name.as_str(), Value::from(Serde(v)))));
    Value::from_pairs(values)
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

fn told(e: &minijinja::Error) -> Refusal {
    let place = e.line().map_or(String::new(), |n| format!(", line {n}"));
    let what = match e.kind() {
        ErrorKind::OutOfFuel => "it takes more steps or memory than any conversation needs".to_owned(),
        kind => e.detail().map_or_else(|| kind.to_string(), str::to_owned),
    };
    // A cause names the line where it went wrong.
    let cause = std::error::Error::source(e).map_or(String::new(), |c| format!(": {c}"));
    Refusal {
        place,
        ..Refusal::new(format!("{what}{cause}").chars().take(MAX_WORDS).collect())
    }
}
