//! The run: command line to prompt, prompt to tokens, tokens to text.

use std::time::Instant;

use gguf::key;
use gguf_cli::{Failure, Result, say};

use super::args::Args;
use super::cache::Cache;
use super::engine::{Engine, Fed};
use super::stream::Stream;
use super::{chat, ids, input, report};
use crate::{Model, Sampler, Settings, Tokenizer};

/// Runs the program.
pub(super) fn run(args: &Args) -> Result<()> {
    args.threads.pool()?.enter(|| match &args.logits {
        l if let (Some(from), Some(to)) = (&l.ids, &l.logits_out) => ids::run(args, from, to),
        l if l.logits_out.is_some() => Err(Failure::Usage(
            "`--logits-out` needs the tokens that `--ids` gives".into(),
        )),
        _ => write(args),
    })
}

/// Why nothing more was generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The model ended with this token.
    End(u32),
    /// The stop text with this number.
    Text(usize),
    /// As many tokens as were asked for.
    Limit,
    /// No room for another.
    Context,
}

/// A prompt and what the model wrote behind it.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) prompt: Vec<u32>,
    pub(super) fed: Fed,
    /// What was chosen, without a token that ends the text.
    pub(super) ids: Vec<u32>,
    pub(super) text: String,
    pub(super) stop: Stop,
    /// Time for these.
    pub(super) seconds: f64,
}

impl Turn {
    /// Whether the context has no room left.
    pub(super) fn is_full(&self) -> bool {
        self.stop == Stop::Context
    }
}

/// What all turns of a run share.
pub(super) struct Run<'a> {
    pub(super) args: &'a Args,
    pub(super) model: &'a Model,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) stops: Vec<String>,
    engine: Engine<'a>,
    sampler: Sampler,
    cache: Option<Cache<'a>>,
}

fn write(args: &Args) -> Result<()> {
    let text = args.input.text()?;
    let converse = args.chat.wanted(text.is_some());
    if text.is_none() && !converse {
        let line = "a text is needed: `-p TEXT` or `-f FILE`";
        return Err(Failure::Usage(line.into()));
    }
    let stops = stops(args)?;
    let model = open(args)?;
    let tokenizer = model.tokenizer()?;
    let template = converse
        .then(|| chat::template(args, &model, &tokenizer))
        .transpose()?;
    let n_ctx = args.size.n_ctx(model.spec().n_ctx_train);
    let settings = settings(args, n_ctx);
    warn_if_long(&model, n_ctx);
    let banned = if args.length.ignore_eos {
        tokenizer.ends()
    } else {
        &[]
    };
    let cache = args.cache.path.as_deref();
    let mut run = Run {
        args,
        model: &model,
        tokenizer: &tokenizer,
        stops,
        sampler: Sampler::new(args.sampling.settings(n_ctx, banned))?,
        engine: Engine::new(&model, settings, args.size.batch_size, args.talk.quiet)?,
        cache: cache
            .map(|path| Cache::new(args, path, &model, &settings))
            .transpose()?,
    };
    match (template, text) {
        (Some(template), text) => chat::run(args, &mut run, &template, text),
        (None, text) => {
            if model.file().metadata.contains(key::CHAT_TEMPLATE) && !args.chat.no_chat && !args.talk.quiet {
                say("notice: the text goes to the model as it is; `--chat` takes it for a message");
            }
            let text = text.unwrap_or_default();
            let turn = run.turn(&input::encode(&tokenizer, &text)?)?;
            run.report(&text, &turn)
        }
    }
}

/// The model.
pub(super) fn open(args: &Args) -> Result<Model> {
    Ok(args.load.open(&args.model, args.talk.quiet)?)
}

/// What the command line says of the session.
pub(super) fn settings(args: &Args, n_ctx: usize) -> Settings {
    args.exactness.apply(Settings {
        n_ctx,
        n_ubatch: args.size.ubatch.ubatch_size.min(n_ctx),
        ..Settings::default()
    })
}

pub(super) fn warn_if_long(model: &Model, n_ctx: usize) {
    let trained = model.spec().n_ctx_train;
    if n_ctx > trained {
        gguf_cli::warn(&format!(
            "a context of {n_ctx} tokens is longer than the {trained} the model was trained on"
        ));
    }
}

fn stops(args: &Args) -> Result<Vec<String>> {
    let texts = args.length.reverse_prompt.iter();
    let stops: Vec<String> = texts.map(|t| args.input.unescaped(t)).collect::<Result<_>>()?;
    if stops.iter().any(String::is_empty) {
        let line = "`-r`: expected a text, found an empty one";
        return Err(Failure::Usage(line.into()));
    }
    Ok(stops)
}

impl Run<'_> {
    /// Evaluates a prompt and generates behind it. The text goes to stdout as it comes, unless it is to be part
    /// of an object.
    pub(super) fn turn(&mut self, prompt: &[u32]) -> Result<Turn> {
        let is_first = self.engine.ids.is_empty();
        if let Some(cache) = &mut self.cache {
            cache.restore(&mut self.engine, prompt)?;
        }
        let fed = self.engine.prompt(prompt)?;
        let how = &self.args.cache;
        // Of a conversation the first prompt is kept, or all of it.
        let wanted = !how.read_only && (how.all || is_first);
        if let Some(cache) = self.cache.as_mut().filter(|_| wanted) {
            cache.save(&self.engine)?;
        }
        self.sampler.forget();
        for &id in prompt {
            self.sampler.accept(id);
        }
        let started = Instant::now();
        let live = !self.args.json;
        let mut sink = |text: &str| if live { print_now(text) } else { Ok(()) };
        let stream = Stream::new(self.tokenizer, self.args.length.special, &self.stops, &mut sink);
        let (ids, text, stop) = generate(&mut self.engine, &mut self.sampler, self.args, stream)?;
        if live {
            print_now("\n")?;
        }
        let seconds = started.elapsed().as_secs_f64();
        if let Some(cache) = self.cache.as_mut().filter(|_| self.args.cache.all) {
            cache.save(&self.engine)?;
        }
        Ok(Turn {
            prompt: prompt.to_vec(),
            fed,
            ids,
            text,
            stop,
            seconds,
        })
    }

    /// Tells about a turn: as one object on stdout, or in lines on stderr.
    pub(super) fn report(&self, prompt: &str, turn: &Turn) -> Result<()> {
        if self.args.json {
            let settings = self.sampler.settings();
            return gguf_cli::print_json(&report::object(self, prompt, turn, settings));
        }
        if !self.args.talk.quiet {
            for line in report::lines(self, turn, self.engine.n_ctx()) {
                say(&line);
            }
        }
        Ok(())
    }
}

/// Chooses tokens until there is a reason to stop.
fn generate(
    engine: &mut Engine<'_>,
    sampler: &mut Sampler,
    args: &Args,
    mut stream: Stream<'_>,
) -> Result<(Vec<u32>, String, Stop)> {
    let limit = usize::try_from(args.length.predict).unwrap_or(usize::MAX);
    let mut ids = Vec::new();
    let stop = loop {
        if ids.len() == limit {
            break Stop::Limit;
        }
        let id = sampler.sample(&engine.logits)?;
        if stream.ends(id) {
            break Stop::End(id);
        }
        ids.push(id);
        if let Some(stop) = stream.push(id)? {
            break Stop::Text(stop);
        }
        if ids.len() == limit {
            break Stop::Limit;
        }
        if engine.ids.len() == engine.n_ctx() {
            break Stop::Context;
        }
        engine.push(id)?;
    };
    Ok((ids, stream.finish()?, stop))
}

fn print_now(text: &str) -> Result<()> {
    gguf_cli::write_data(|out| out.write_all(text.as_bytes()))
}
