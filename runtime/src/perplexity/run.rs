//! The run: text or base file to chunks, chunks to scores, scores to the report.

use std::path::{Path, PathBuf};

use gguf::atomic::AtomicFile;
use gguf_cli::{Failure, Result, Unit, count, file_name};
use serde_json::{Map, Value, json};

use super::args::{Args, Base};
use super::base::{self, BaseFile, Form};
use super::kl::{Divergence, MIN_COUNT};
use super::locate::{self, BadLogit};
use super::rows::{self, Beside};
use super::tally::Tally;
use super::texts::{self, Text, TokenBytes};
use super::view::View;
use super::{report, side_by_side, tasks};
use crate::chunks::{ChunkRows, Chunks, Evaluator, Wanted};
use crate::pool;
use crate::{Error, Model, Settings, Tokenizer};

/// Runs the program.
pub(super) fn run(args: &Args) -> Result<()> {
    args.check()?;
    args.threads.pool()?.enter(|| match args.tasks.kind() {
        Some((kind, limit)) => tasks::run(args, kind, limit),
        None if !args.compare.is_empty() => side_by_side::run(args),
        None => score(args),
    })
}

/// Scores texts with one model, beside a base file or without.
fn score(args: &Args) -> Result<()> {
    let sources = match (args.base(), args.file.is_empty() && args.prompt.is_none()) {
        (Base::Compare(_), true) => Vec::new(),
        _ => texts::read(args)?,
    };
    let (model, tokenizer) = texts::open(args)?;
    let (texts, mut output) = if let Base::Compare(path) = args.base() {
        compare(args, path, &model, &tokenizer, sources)?
    } else {
        let texts = texts::cut(args, sources, &tokenizer)?;
        let output = create(args, &model, &texts)?;
        (texts, output)
    };
    let mut evaluator = texts::evaluator(args, &model, &texts)?;
    let bytes = TokenBytes::new(&tokenizer);
    let n_chunks = texts.iter().map(|t| t.chunks.n_chunks()).sum();
    let mut view = View::new(args, "perplexity", n_chunks, Unit::Chunks);
    let mut tallies = Vec::new();
    for text in &texts {
        let scorer = Scorer {
            args,
            text,
            bytes: &bytes,
            output: &mut output,
            view: &mut view,
            tally: Tally::default(),
        };
        let tally = scorer.run(&mut evaluator, texts.len() > 1)?;
        tallies.push(tally);
    }
    view.finish();
    finish(args, &model, &texts, &tallies, output)
}

/// The output of a run that reads no base file.
fn create(args: &Args, model: &Model, texts: &[Text]) -> Result<Output> {
    let (Base::Write(path), [text]) = (args.base(), texts) else {
        return Ok(Output::Score);
    };
    let shards = model.file().parts().iter().map(gguf::Part::path);
    let given = args.file.iter().chain([&args.model]).map(PathBuf::as_path);
    let inputs: Vec<&Path> = given.chain(shards).collect();
    let n_vocab = model.spec().n_vocab;
    let form = if args.kl_compact {
        Form::compact(n_vocab)
    } else {
        Form::Full
    };
    let file = base::create(path, args.output.force, &inputs, &text.chunks, n_vocab, form)?;
    Ok(Output::Write {
        file,
        form,
        path: path.to_path_buf(),
        rows: Vec::new(),
    })
}

/// A base file to compare with. It decides about text and context; what is given beside it must agree.
fn compare(
    args: &Args,
    path: &Path,
    model: &Model,
    tokenizer: &Tokenizer,
    sources: Vec<texts::Source>,
) -> Result<(Vec<Text>, Output)> {
    let file = BaseFile::open(path, model.spec().n_vocab)?;
    let base = path.display();
    if let Some(n_ctx) = args.chunks.ctx_size.filter(|&n| n != file.n_ctx) {
        return Err(Failure::Usage(format!(
            "`-c {n_ctx}`: `{base}` was made with chunks of {}; leave `-c` out or give that",
            file.n_ctx
        )));
    }
    let mut name = None;
    for source in sources {
        let tokens = tokenizer.encode(&source.text, true, false)?;
        let mut pairs = file.tokens.iter().enumerate();
        if let Some((i, expected)) = pairs.find(|&(i, t)| tokens.get(i) != Some(t)) {
            let found = tokens.get(i).map_or("the end".to_owned(), u32::to_string);
            return Err(Failure::Input(format!(
                "`{}`, token {i}: expected {expected} as `{base}` has, found {found}; the base was made of \
                 another text or with another tokenizer, leave the text out to take its tokens",
                source.shown
            )));
        }
        name = Some(source.name);
    }
    let n_chunks = file.tokens.len() / file.n_ctx;
    if let Some(asked) = args.chunks.limit().filter(|&n| n > n_chunks) {
        gguf_cli::warn(&format!(
            "`--chunks {asked}`: `{base}` holds {}",
            count(n_chunks as u64, "chunk")
        ));
    }
    let settings = args.chunks.settings(file.n_ctx);
    let chunks = Chunks::of_whole(file.tokens.clone(), settings, tokenizer.leading())?;
    let output = Output::Compare {
        file,
        path: path.to_path_buf(),
        rows: Vec::new(),
        next: 0,
    };
    Ok((vec![Text { name, chunks }], output))
}

/// What a report on texts begins with.
pub(super) fn head(args: &Args, model: &Model, texts: &[Text]) -> Map<String, Value> {
    let first = texts.first().map(|t| &t.chunks);
    let name = match texts {
        [text] => text.name.as_deref(),
        _ => None,
    };
    let stride = first.map(Chunks::step).filter(|_| args.ppl_stride > 0);
    let head = json!({
        "model": file_name(&args.model),
        "text": name,
        "n_ctx": first.map(Chunks::n_ctx),
        "stride": stride,
        "n_batch": first.map(Chunks::n_batch),
        "n_vocab": model.spec().n_vocab,
        "chunks": texts.iter().map(|t| t.chunks.n_chunks()).sum::<usize>(),
        "cache_type_k": args.exactness.cache_type_k.name(),
        "cache_type_v": args.exactness.cache_type_v.name(),
        "compute": args.exactness.compute.name(),
        "cpu": gguf_blocks::Cpu::best().level().name(),
        "threads": pool::n_threads(),
    });
    match head {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The failure of an evaluation of `text`: a value that is no number is looked into.
pub(super) fn explain(e: Error, model: &Model, text: &Text, settings: &Settings, several: bool) -> Failure {
    let Error::NonFinite {
        chunk,
        pos,
        token,
        value,
    } = e
    else {
        return e.into();
    };
    if !model.is_resident() {
        return locate::explain_layered(&e, model.file());
    }
    let mut ids = text.chunks.inputs(chunk - 1);
    ids.truncate(pos + 1);
    let place = match &text.name {
        Some(name) if several => format!("`{name}`, chunk {chunk}"),
        _ => format!("chunk {chunk}"),
    };
    let bad = BadLogit {
        place,
        pos,
        token,
        value,
    };
    locate::explain(&bad, model, &ids, settings)
}

/// What happens to rows of logits beside scoring.
enum Output {
    Score,
    Write {
        file: AtomicFile,
        form: Form,
        path: PathBuf,
        rows: Vec<u8>,
    },
    Compare {
        file: BaseFile,
        path: PathBuf,
        rows: Vec<u8>,
        next: usize,
    },
}

/// Turns rows of logits of one text into statistics and lines. Rows are scored in parallel and added up in order.
struct Scorer<'a> {
    args: &'a Args,
    text: &'a Text,
    bytes: &'a TokenBytes,
    output: &'a mut Output,
    view: &'a mut View,
    tally: Tally,
}

impl Scorer<'_> {
    /// Scores the text. With `several` its name stands above its lines.
    fn run(mut self, evaluator: &mut Evaluator<'_>, several: bool) -> Result<Tally> {
        let (text, settings, model) = (self.text, *evaluator.settings(), evaluator.model());
        let explain = |e| explain(e, model, text, &settings, several);
        let done = self.evaluate(evaluator, several);
        let done = done.and_then(|()| self.end(several));
        self.view.outcome(done, explain)?;
        require_finite(&self.tally)?;
        Ok(self.tally)
    }

    fn evaluate(&mut self, evaluator: &mut Evaluator<'_>, several: bool) -> crate::Result<()> {
        if let (true, Some(name)) = (several, &self.text.name) {
            self.view.line(&format!("text: {name}"))?;
        }
        if matches!(self.output, Output::Compare { .. }) {
            self.tally.divergence = Some(Divergence::default());
            self.view.line(report::COMPARISON_HEAD)?;
        }
        let chunks = &self.text.chunks;
        chunks.evaluate(evaluator, Wanted::Scored, None, &mut |rows| self.take(rows))
    }

    fn take(&mut self, block: ChunkRows<'_>) -> crate::Result<()> {
        let chunks = &self.text.chunks;
        let scores = match &mut self.output {
            Output::Score => rows::score(&block, chunks, Beside::Nothing)?,
            Output::Write {
                file,
                form,
                path,
                rows,
            } => {
                let scores = rows::score(&block, chunks, Beside::Encode(rows, *form))?;
                base::write(file, path, rows)?;
                scores
            }
            Output::Compare {
                file,
                path,
                rows,
                next,
            } => {
                file.read_rows(*next, block.places.len(), rows)?;
                *next += block.places.len();
                rows::score(&block, chunks, Beside::Coded(rows, path, file.form))?
            }
        };
        let last = chunks.scored().end - 1;
        for (&(chunk, pos), score) in block.places.iter().zip(scores) {
            let n_bytes = self.bytes.of(chunks.target((chunk, pos)));
            self.tally.add(score, n_bytes);
            if pos == last {
                self.end_chunk(chunk)?;
            }
        }
        Ok(())
    }

    fn end_chunk(&mut self, chunk: usize) -> crate::Result<()> {
        let p = &mut self.tally.perplexity;
        let ppl = p.end_chunk();
        let first_token = chunk * self.text.chunks.step();
        match (&self.tally.divergence, self.args.ppl_output_type) {
            (Some(d), _) => self.view.line(&report::comparison(chunk + 1, d))?,
            (None, 1) => self.view.line(&report::detailed(first_token, p))?,
            (None, _) => self.view.item(report::running(chunk + 1, ppl))?,
        }
        self.view.step(&report::status(&self.tally));
        Ok(())
    }

    /// The lines behind the last chunk of the text.
    fn end(&mut self, several: bool) -> crate::Result<()> {
        if self.tally.divergence.is_some() {
            return Ok(());
        }
        if self.args.ppl_output_type == 0 {
            self.view.end_items()?;
        }
        let gap = if several { "\n" } else { "" };
        self.view.line(&(report::final_estimate(&self.tally) + gap))
    }
}

/// Refuses results with a statistic that is no finite number: what led to it was damaged.
pub(super) fn require_finite(tally: &Tally) -> Result<()> {
    match tally.first_non_finite() {
        None => Ok(()),
        Some(name) => Err(Failure::Input(format!(
            "statistic `{name}`: expected a finite number, found none; the model or the base is damaged"
        ))),
    }
}

fn finish(args: &Args, model: &Model, texts: &[Text], tallies: &[Tally], output: Output) -> Result<()> {
    if let Output::Write { file, .. } = output {
        file.commit()?;
    }
    let all = Tally::of_all(tallies);
    if args.json {
        let mut object = head(args, model, texts);
        report::add_scores(&mut object, &all);
        report::add_texts(&mut object, texts, tallies);
        return gguf_cli::print_json(&Value::Object(object));
    }
    match &all.divergence {
        Some(d) if d.n() >= MIN_COUNT => gguf_cli::print_data(&report::summary(&d.summary())),
        Some(d) => gguf_cli::print_data(&format!("\n{} predictions are too few for statistics", d.n())),
        None if texts.len() > 1 => gguf_cli::print_data(&report::texts_table(texts, tallies, &all)),
        None => Ok(()),
    }
}
