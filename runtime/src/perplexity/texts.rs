//! Texts that are scored: read, made into tokens, cut into chunks.

use std::io::Read as _;
use std::path::Path;

use gguf_cli::{Failure, Result, file_name, human_bytes};

use super::args::Args;
use super::locate;
use crate::chunks::{Chunks, Evaluator, Wanted};
use crate::options::{Reserve, pass_layers};
use crate::{Error, Model, Settings, Tokenizer};

/// The largest text from the standard input, as of files.
const MAX_BYTES: u64 = 1 << 30;

/// A text in chunks.
pub(super) struct Text {
    /// Its file's name without the folder; `None` where the tokens came with a base file.
    pub(super) name: Option<String>,
    pub(super) chunks: Chunks,
}

/// Opens a model as the command line asks.
pub(super) fn open_model(args: &Args, path: &Path) -> Result<Model> {
    let quiet = args.talk.quiet;
    if args.tasks.kind().is_some() {
        return Ok(args.load.open(path, quiet)?);
    }
    let settings = args.exactness.apply(args.chunks.session_settings());
    Ok(args
        .order
        .open(path, &settings, &|_| reserve(args), args.load, quiet)?)
}

/// Bytes of the base's logits that are kept at a time where models are compared, if one position takes no more.
const KEPT: usize = 256 << 20;

/// The same under a limit of memory, of which they take an eighth at most.
pub(super) fn kept(args: &Args) -> usize {
    let share = args.order.max_memory.map_or(KEPT as u64, |limit| limit / 8);
    usize::try_from(share).unwrap_or(KEPT).min(KEPT)
}

fn reserve(args: &Args) -> Reserve<'static> {
    let n_others = args.compare.len() as u64;
    let kept = if n_others > 0 { kept(args) as u64 } else { 0 };
    Reserve {
        bytes: kept.saturating_add(gguf_cli::text_memory(&args.file)),
        n_models: n_others + 1,
        temp_dir: Path::new("."),
    }
}

/// What evaluates texts with a model, behind its layers where these come first.
pub(super) fn evaluator<'m>(args: &Args, model: &'m Model, texts: &[Text]) -> Result<Evaluator<'m>> {
    let settings = settings(args, texts);
    warn_of_length(model, settings.n_ctx);
    let chunks: Vec<&Chunks> = texts.iter().map(|t| &t.chunks).collect();
    let mut evaluator = args
        .order
        .evaluator(model, settings, &chunks, Wanted::Scored, reserve(args))?;
    let name = file_name(model.file().path());
    pass_layers(&mut evaluator, &chunks, Wanted::Scored, &name, args.talk.quiet).map_err(|e| match e {
        Error::NonFiniteState { .. } => locate::explain_layered(&e, model.file()),
        e => e.into(),
    })?;
    Ok(evaluator)
}

/// Opens the model `-m`, whose predictions of a text must mean something.
pub(super) fn open(args: &Args) -> Result<(Model, Tokenizer)> {
    let path = &args.model;
    let model = open_model(args, path)?;
    let tokenizer = model.tokenizer()?;
    if tokenizer.trailing().is_some() {
        let path = path.display();
        return Err(Failure::Input(format!(
            "`{path}`: the vocabulary puts EOS behind every text, so perplexity would mean nothing"
        )));
    }
    Ok((model, tokenizer))
}

/// A text that the command line names: the name for reports, the one for messages, the text.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) shown: String,
    pub(super) text: String,
}

/// Reads all texts.
pub(super) fn read(args: &Args) -> Result<Vec<Source>> {
    if let Some(text) = &args.prompt {
        return Ok(vec![Source {
            name: "prompt".into(),
            shown: "-p".into(),
            text: text.clone(),
        }]);
    }
    let one = |path: &std::path::PathBuf| {
        let stdin = path.as_os_str() == "-";
        Ok(Source {
            name: if stdin {
                "stdin".into()
            } else {
                file_name(path).into_owned()
            },
            shown: path.display().to_string(),
            text: if stdin {
                read_stdin()?
            } else {
                gguf_cli::read_text(path)?
            },
        })
    };
    args.file.iter().map(one).collect()
}

fn read_stdin() -> Result<String> {
    let mut bytes = Vec::new();
    let read = std::io::stdin()
        .lock()
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes);
    read.map_err(|e| Failure::Usage(format!("`-f -`: cannot read the standard input: {e}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        let most = human_bytes(MAX_BYTES);
        return Err(Failure::Input(format!(
            "`-f -`: expected a text of at most {most}, found more; cut it"
        )));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::Input(format!(
            "`-f -` at byte {at}: expected UTF-8 text, found other bytes"
        ))
    })
}

/// Cuts all texts as the command line asks.
pub(super) fn cut(args: &Args, sources: Vec<Source>, tokenizer: &Tokenizer) -> Result<Vec<Text>> {
    let settings = args.chunks.settings(args.chunks.n_ctx());
    let one = |source: Source| {
        let tokens = tokenizer.encode(&source.text, true, false)?;
        let chunks = match args.ppl_stride {
            0 => Chunks::of_text(tokens, settings, tokenizer.leading()),
            stride => Chunks::strided(tokens, settings, stride),
        };
        let chunks = chunks.map_err(|e| match e {
            Error::TextTooShort { .. } => Failure::Input(format!("`{}`: {e}", source.shown)),
            other => other.into(),
        })?;
        Ok(Text {
            name: Some(source.name),
            chunks,
        })
    };
    sources.into_iter().map(one).collect()
}

/// The settings of a session that all texts fit in.
pub(super) fn settings(args: &Args, texts: &[Text]) -> Settings {
    let n_ubatch = args.chunks.ubatch.ubatch_size;
    let each = texts.iter().map(|t| t.chunks.session_settings(n_ubatch));
    let widest = each.reduce(|a, b| Settings {
        n_ctx: a.n_ctx.max(b.n_ctx),
        n_seq: a.n_seq.max(b.n_seq),
        n_ubatch: a.n_ubatch.max(b.n_ubatch),
        ..a
    });
    args.exactness.apply(widest.unwrap_or_default())
}

/// Says so where chunks are longer than what a model was trained on.
pub(super) fn warn_of_length(model: &Model, n_ctx: usize) {
    let trained = model.spec().n_ctx_train;
    if n_ctx > trained {
        gguf_cli::warn(&format!(
            "chunks of {n_ctx} tokens are longer than the {trained} the model was trained on"
        ));
    }
}

/// Bytes of text that each token of a vocabulary stands for.
pub(super) struct TokenBytes(Vec<u32>);

impl TokenBytes {
    pub(super) fn new(tokenizer: &Tokenizer) -> Self {
        let mut bytes = Vec::new();
        let n_bytes = |id| {
            bytes.clear();
            tokenizer.append_bytes(id, &mut bytes);
            bytes.len() as u32
        };
        Self((0..tokenizer.n_vocab() as u32).map(n_bytes).collect())
    }

    /// Of one token; nothing for ids without a text.
    pub(super) fn of(&self, id: u32) -> u64 {
        self.0.get(id as usize).map_or(0, |&n| u64::from(n))
    }
}
