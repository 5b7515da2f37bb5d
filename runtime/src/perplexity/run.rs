//! The run: text or base file to chunks, chunks to scores, scores to the report.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use gguf::atomic::AtomicFile;
use gguf_cli::{Failure, Progress, Result, Unit, count};
use rayon::prelude::*;
use serde_json::{Map, Value, json};

use super::args::{Args, Base};
use super::base::{self, BaseFile, BaseRow};
use super::kl::{Comparison, Divergence, MIN_COUNT};
use super::report;
use super::score::{LogSum, Perplexity};
use crate::chunks::{ChunkRows, Chunks, Wanted};
use crate::{Error, Model, Session, Tokenizer};

/// Runs the program.
pub(super) fn run(args: &Args) -> Result<()> {
    args.threads.pool()?.install(|| evaluate(args))
}

fn evaluate(args: &Args) -> Result<()> {
    let text = args.text()?;
    let model = Model::open(&args.model)?;
    let tokenizer = model.tokenizer()?;
    if tokenizer.trailing().is_some() {
        let path = args.model.display();
        return Err(Failure::Input(format!(
            "`{path}`: the vocabulary puts EOS behind every text, so perplexity would mean nothing"
        )));
    }
    let (chunks, output) = match args.base() {
        Base::Compare(path) => compare(args, path, &model, &tokenizer, text)?,
        _ => score(args, &model, &tokenizer, &text.unwrap_or_default())?,
    };
    let trained = model.spec().n_ctx_train;
    if chunks.n_ctx() > trained {
        let n_ctx = chunks.n_ctx();
        gguf_cli::warn(&format!(
            "chunks of {n_ctx} tokens are longer than the {trained} the model was trained on"
        ));
    }
    let mut session = Session::new(&model, chunks.session_settings(args.chunks.ubatch.ubatch_size))?;
    let mut scorer = Scorer::new(args, &chunks, output)?;
    let done = chunks.evaluate(&mut session, Wanted::Scored, None, &mut |rows| scorer.take(rows));
    if let Some(failure) = scorer.failure.take() {
        return Err(failure);
    }
    done?;
    scorer.finish(head(args, &model, &chunks))
}

/// A text to score, and where a base file is asked for, to write to it.
fn score(args: &Args, model: &Model, tokenizer: &Tokenizer, text: &str) -> Result<(Chunks, Output)> {
    let tokens = tokenizer.encode(text, true, false)?;
    let settings = args.chunks.settings(args.chunks.n_ctx());
    let chunks = Chunks::of_text(tokens, settings, tokenizer.leading())?;
    let Base::Write(path) = args.base() else {
        return Ok((chunks, Output::Score));
    };
    let shards = model.file().parts().iter().map(gguf::Part::path);
    let given = args.file.iter().chain([&args.model]).map(PathBuf::as_path);
    let inputs: Vec<&Path> = given.chain(shards).collect();
    let file = base::create(path, args.output.force, &inputs, &chunks, model.spec().n_vocab)?;
    let output = Output::Write {
        file,
        path: path.to_path_buf(),
        rows: Vec::new(),
    };
    Ok((chunks, output))
}

/// A base file to compare with. It decides about text and context; what is given beside it must agree.
fn compare(
    args: &Args,
    path: &Path,
    model: &Model,
    tokenizer: &Tokenizer,
    text: Option<String>,
) -> Result<(Chunks, Output)> {
    let file = BaseFile::open(path, model.spec().n_vocab)?;
    let base = path.display();
    if let Some(n_ctx) = args.chunks.ctx_size.filter(|&n| n != file.n_ctx) {
        return Err(Failure::Usage(format!(
            "`-c {n_ctx}`: `{base}` was made with chunks of {}; leave `-c` out or give that",
            file.n_ctx
        )));
    }
    if let (Some(text), Some(from)) = (text, &args.file) {
        let tokens = tokenizer.encode(&text, true, false)?;
        let differing = file
            .tokens
            .iter()
            .enumerate()
            .find(|&(i, t)| tokens.get(i) != Some(t));
        if let Some((i, expected)) = differing {
            let found = tokens.get(i).map_or("the end".to_owned(), u32::to_string);
            return Err(Failure::Input(format!(
                "`{}`, token {i}: expected {expected} as `{base}` has, found {found}; the base was made of \
                 another text or with another tokenizer, leave `-f` out to take its tokens",
                from.display()
            )));
        }
    }
    let n_chunks = file.tokens.len() / file.n_ctx;
    if let Some(asked) = args.chunks.chunks.filter(|&n| n > n_chunks) {
        gguf_cli::warn(&format!(
            "`--chunks {asked}`: `{base}` holds {}",
            count(n_chunks as u64, "chunk")
        ));
    }
    let settings = args.chunks.settings(file.n_ctx);
    let chunks = Chunks::of_whole(file.tokens.clone(), settings, tokenizer.leading())?;
    Ok((chunks, Output::compare(file, path)))
}

fn head(args: &Args, model: &Model, chunks: &Chunks) -> Map<String, Value> {
    let name = |p: &Path| p.file_name().map(|n| n.to_string_lossy().into_owned());
    let head = json!({
        "model": name(&args.model),
        "text": args.file.as_deref().and_then(name),
        "n_ctx": chunks.n_ctx(),
        "n_batch": chunks.n_batch(),
        "n_vocab": model.spec().n_vocab,
        "chunks": chunks.n_chunks(),
        "cpu": gguf_blocks::Cpu::best().level().name(),
        "threads": rayon::current_num_threads(),
    });
    match head {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// What happens to rows of logits beside scoring.
enum Output {
    Score,
    Write {
        file: AtomicFile,
        path: PathBuf,
        rows: Vec<u8>,
    },
    Compare {
        file: BaseFile,
        path: PathBuf,
        rows: Vec<u8>,
        next: usize,
        divergence: Divergence,
    },
}

impl Output {
    fn compare(file: BaseFile, path: &Path) -> Self {
        let path = path.to_path_buf();
        Self::Compare {
            file,
            path,
            rows: Vec::new(),
            next: 0,
            divergence: Divergence::default(),
        }
    }
}

/// Turns rows of logits into statistics and lines. Rows are scored in parallel and added up in order.
struct Scorer<'a> {
    args: &'a Args,
    chunks: &'a Chunks,
    output: Output,
    perplexity: Perplexity,
    progress: Progress,
    started: Instant,
    /// Why the evaluation was stopped, if the model was not to blame.
    failure: Option<Failure>,
}

impl<'a> Scorer<'a> {
    fn new(args: &'a Args, chunks: &'a Chunks, output: Output) -> Result<Self> {
        // On a terminal the lines themselves show progress, and a bar would tear them.
        let silent = args.talk.quiet || (!args.json && std::io::stdout().is_terminal());
        if !args.json && matches!(output, Output::Compare { .. }) {
            gguf_cli::print_data(report::COMPARISON_HEAD)?;
        }
        let progress = Progress::new("perplexity", chunks.n_chunks() as u64, Unit::Chunks, silent);
        Ok(Self {
            args,
            chunks,
            output,
            perplexity: Perplexity::default(),
            progress,
            started: Instant::now(),
            failure: None,
        })
    }

    fn take(&mut self, block: ChunkRows<'_>) -> crate::Result<()> {
        let scores = self.score(&block)?;
        let last = self.chunks.scored().end - 1;
        for (&(chunk, pos), (nll, comparison)) in block.places.iter().zip(scores) {
            self.perplexity.add(nll);
            if let (Some(c), Output::Compare { divergence, .. }) = (comparison, &mut self.output) {
                divergence.add(&c);
            }
            if pos == last {
                self.end_chunk(chunk)?;
            }
        }
        Ok(())
    }

    fn end_chunk(&mut self, chunk: usize) -> crate::Result<()> {
        let ppl = self.perplexity.end_chunk();
        self.progress.add(1);
        if chunk + 1 == self.chunks.n_seq() && std::io::stdout().is_terminal() {
            self.announce();
        }
        if self.args.json {
            return Ok(());
        }
        let text = match &self.output {
            Output::Compare { divergence, .. } => report::comparison(chunk + 1, divergence),
            _ => report::running(chunk + 1, ppl),
        };
        gguf_cli::write_data(|out| out.write_all(text.as_bytes())).map_err(|e| self.stop(e))
    }

    /// How long it will take, once that is known.
    fn announce(&self) {
        if !self.args.talk.quiet && !self.args.json {
            let each = self.started.elapsed().as_secs_f64() / self.chunks.n_seq() as f64;
            let left = self.started.elapsed().div_f64(self.chunks.n_seq() as f64)
                * (self.chunks.n_chunks() - self.chunks.n_seq()) as u32;
            let left = gguf_cli::human_time(left);
            self.progress
                .note(&format!("{each:.2} s a chunk, about {left} left"));
        }
    }

    fn stop(&mut self, failure: Failure) -> Error {
        self.failure = Some(failure);
        Error::Stopped
    }

    /// Negative log probability and comparison of each row.
    fn score(&mut self, block: &ChunkRows<'_>) -> crate::Result<Vec<Score>> {
        let (n_vocab, chunks) = (block.n_vocab, self.chunks);
        let row_bytes = base::row_bytes(n_vocab);
        let rows = block.places.par_iter().zip(block.rows.par_chunks(n_vocab));
        let target = |&place: &(usize, usize)| chunks.target(place) as usize;
        match &mut self.output {
            Output::Score => collect(rows.map(|(place, logits)| {
                let sum = log_sum(*place, logits)?;
                Ok((sum.nll(logits[target(place)]), None))
            })),
            Output::Write {
                file,
                path,
                rows: bytes,
            } => {
                bytes.resize(block.places.len() * row_bytes, 0);
                let rows = rows.zip(bytes.par_chunks_mut(row_bytes));
                let scores = collect(rows.map(|((place, logits), out)| {
                    let sum = log_sum(*place, logits)?;
                    base::encode(logits, &sum, out);
                    Ok((f64::from(sum.total() - logits[target(place)]), None))
                }))?;
                base::write(file, path, bytes)?;
                Ok(scores)
            }
            Output::Compare {
                file,
                path,
                rows: bytes,
                next,
                ..
            } => {
                file.read_rows(*next, block.places.len(), bytes)?;
                *next += block.places.len();
                collect(
                    rows.zip(bytes.par_chunks(row_bytes))
                        .map(|((place, logits), base)| {
                            let base = BaseRow::new(base, n_vocab);
                            let damaged = |what: String| damaged(path, *place, &what);
                            base.fault().map_or(Ok(()), |what| Err(damaged(what)))?;
                            let sum = log_sum(*place, logits)?;
                            let nll = f64::from(sum.total() - logits[target(place)]);
                            let found = Comparison::new(logits, &sum, base, target(place));
                            match found.fault(n_vocab) {
                                Some(what) => Err(damaged(what)),
                                None => Ok((nll, Some(found))),
                            }
                        }),
                )
            }
        }
    }

    /// Refuses results with a statistic that is no finite number.
    fn check(&self) -> Result<()> {
        finite("ppl", self.perplexity.value())?;
        finite("ppl_stderr", self.perplexity.stderr().unwrap_or(0.0))?;
        let summary = match &self.output {
            Output::Compare { divergence, .. } => divergence.summary(),
            _ => return Ok(()),
        };
        summary
            .first_non_finite()
            .map_or(Ok(()), |name| finite(&name, f64::NAN))
    }

    fn finish(self, head: Map<String, Value>) -> Result<()> {
        self.check()?;
        self.progress.finish();
        let divergence = match self.output {
            Output::Score => None,
            Output::Write { file, .. } => {
                file.commit()?;
                None
            }
            Output::Compare { divergence, .. } => Some(divergence),
        };
        if self.args.json {
            let object = report::object(head, &self.perplexity, divergence.as_ref());
            return gguf_cli::print_json(&object);
        }
        gguf_cli::print_data(&match &divergence {
            None => report::final_estimate(&self.perplexity),
            Some(d) if d.n() >= MIN_COUNT => report::summary(&d.summary()),
            Some(d) => format!("\n{} predictions are too few for statistics", d.n()),
        })
    }
}

/// A number that is none says nothing: what led to it was damaged.
fn finite(name: &str, value: f64) -> Result<()> {
    if value.is_finite() {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "statistic `{name}`: expected a finite number, found {value}; the model or the base is damaged"
    )))
}

type Score = (f64, Option<Comparison>);

fn log_sum((chunk, pos): (usize, usize), logits: &[f32]) -> crate::Result<LogSum> {
    LogSum::of(logits).map_err(|token| Error::NonFinite {
        chunk: chunk + 1,
        pos,
        token,
        value: logits[token],
    })
}

fn damaged(file: &Path, (chunk, pos): (usize, usize), what: &str) -> Error {
    let what = format!("chunk {}, position {pos}: {what}", chunk + 1);
    Error::Damaged {
        file: file.to_path_buf(),
        what,
    }
}

/// All scores, or the first failure in order of the rows.
fn collect(rows: impl IndexedParallelIterator<Item = crate::Result<Score>>) -> crate::Result<Vec<Score>> {
    let all: Vec<_> = rows.collect();
    all.into_iter().collect()
}
