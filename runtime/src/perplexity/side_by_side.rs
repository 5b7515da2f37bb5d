//! Models side by side: a base and those that are compared with it, chunk by chunk, without a file between.
//!
//! All models see the same tokens; the base's logits of one batch are kept as they are. Models that do not fit in memory
//! are taken through their layers before, one after the other, so that only their outputs are left.

use gguf::{Strings, key};
use gguf_cli::{Failure, Result, Unit, file_name, human_bytes, table};
use serde_json::{Map, Value, json};

use super::args::Args;
use super::kl::MIN_COUNT;
use super::report;
use super::rows::{self, Beside};
use super::run::{explain, head, require_finite};
use super::score::LogSum;
use super::tally::Tally;
use super::texts::{self, Text, TokenBytes};
use super::view::View;
use crate::Model;
use crate::chunks::{ChunkBatch, Evaluator, Wanted};

/// A model at work.
struct Runner<'m> {
    name: String,
    model: &'m Model,
    evaluator: Evaluator<'m>,
    /// One a text that is done.
    texts: Vec<Tally>,
    /// Of the text at work.
    tally: Tally,
}

/// The base's logits of one batch.
#[derive(Default)]
struct Kept {
    rows: Vec<f32>,
    sums: Vec<LogSum>,
}

/// Runs the comparison.
pub(super) fn run(args: &Args) -> Result<()> {
    let sources = texts::read(args)?;
    let (base, tokenizer) = texts::open(args)?;
    let others = args.compare.iter().map(|p| texts::open_model(args, p));
    let models: Vec<Model> = std::iter::once(Ok(base)).chain(others).collect::<Result<_>>()?;
    for other in &models[1..] {
        require_same_vocabulary(&models[0], other)?;
    }
    let max_rows = texts::kept(args) / size_of::<f32>() / models[0].spec().n_vocab.max(1);
    let mut texts = texts::cut(args, sources, &tokenizer)?;
    for text in &mut texts {
        text.chunks = text.chunks.clone().with_rows_at_most(max_rows);
    }
    let mut runners = Vec::new();
    for (model, path) in models
        .iter()
        .zip(std::iter::once(&args.model).chain(&args.compare))
    {
        runners.push(Runner {
            name: file_name(path).into_owned(),
            model,
            evaluator: texts::evaluator(args, model, &texts)?,
            texts: Vec::new(),
            tally: Tally::default(),
        });
    }
    let bytes = TokenBytes::new(&tokenizer);
    let n_chunks = texts.iter().map(|t| t.chunks.n_chunks()).sum();
    let mut view = View::new(args, "compare", n_chunks, Unit::Chunks);
    for text in &texts {
        let several = texts.len() > 1;
        let mut pass = Pass {
            text,
            bytes: &bytes,
            several,
            kept: Kept::default(),
            lines: Vec::new(),
        };
        pass.run(&mut runners, &mut view)?;
    }
    view.finish();
    finish(args, &texts, &runners)
}

/// Refuses a model that does not share the base's tokens, whose logits cannot be compared.
fn require_same_vocabulary(base: &Model, other: &Model) -> Result<()> {
    let shown = |m: &Model| m.file().path().display().to_string();
    let refuse = |what: String| {
        Err(Failure::Input(format!(
            "`{}` cannot be compared with `{}`: {what}; compare models with the same tokenizer",
            shown(other),
            shown(base)
        )))
    };
    let (n_base, n_other) = (base.spec().n_vocab, other.spec().n_vocab);
    if n_base != n_other {
        return refuse(format!(
            "expected a vocabulary of {n_base} tokens, found {n_other}"
        ));
    }
    let none = Strings::default();
    let tokens = |m: &'_ Model| -> Result<Strings> {
        let found = m.file().metadata.strings(key::TOKENS);
        Ok(found
            .map_err(gguf_cli::in_file(m.file().path()))?
            .unwrap_or(&none)
            .clone())
    };
    let (a, b) = (tokens(base)?, tokens(other)?);
    let differing = (0..a.len().max(b.len())).find(|&i| a.bytes(i) != b.bytes(i));
    let Some(i) = differing else { return Ok(()) };
    let show = |tokens: &Strings| match tokens.get(i) {
        Some(t) => format!("`{}`", gguf_cli::printable(&t)),
        None => "nothing".into(),
    };
    refuse(format!("token {i}: expected {}, found {}", show(&a), show(&b)))
}

/// One text through all models.
struct Pass<'a> {
    text: &'a Text,
    bytes: &'a TokenBytes,
    several: bool,
    kept: Kept,
    /// Lines of the chunks that a batch ended: chunk, model and text.
    lines: Vec<(usize, usize, String)>,
}

impl Pass<'_> {
    fn run(&mut self, runners: &mut [Runner<'_>], view: &mut View) -> Result<()> {
        let done = self.start(runners.len(), view);
        view.outcome(done, Failure::from)?;
        for (i, runner) in runners.iter_mut().enumerate() {
            runner.tally = if i == 0 {
                Tally::default()
            } else {
                Tally::compared()
            };
        }
        for batch in self.text.chunks.batches() {
            for i in 0..runners.len() {
                let (text, several) = (self.text, self.several);
                let settings = *runners[i].evaluator.settings();
                let model = runners[i].model;
                let done = self.evaluate(&batch, runners, i);
                view.outcome(done, |e| explain(e, model, text, &settings, several))?;
            }
            let shown = self.show(runners, view);
            view.outcome(shown, Failure::from)?;
        }
        for runner in runners {
            require_finite(&runner.tally)?;
            let tally = std::mem::take(&mut runner.tally);
            runner.texts.push(tally);
        }
        Ok(())
    }

    fn start(&self, n_models: usize, view: &mut View) -> crate::Result<()> {
        if let (true, Some(name)) = (self.several, &self.text.name) {
            view.line(&format!("text: {name}"))?;
        }
        let more = if n_models > 2 { "        model" } else { "" };
        view.line(&format!("{}{more}", report::COMPARISON_HEAD))
    }

    /// One batch through model `i`; the base, which is number 0, comes first.
    fn evaluate(&mut self, batch: &ChunkBatch, runners: &mut [Runner<'_>], i: usize) -> crate::Result<()> {
        let several_models = runners.len() > 2;
        let chunks = &self.text.chunks;
        let Runner {
            name,
            evaluator,
            tally,
            ..
        } = &mut runners[i];
        let Kept { rows: kept, sums } = &mut self.kept;
        if i == 0 {
            kept.clear();
            sums.clear();
        }
        let mut at = 0;
        chunks.evaluate_batch(batch, evaluator, Wanted::Scored, None, &mut |block| {
            let beside = if i == 0 {
                let rows = block.places.iter().zip(block.rows.chunks(block.n_vocab));
                for (&place, row) in rows {
                    sums.push(rows::log_sum(place, row)?);
                }
                kept.extend_from_slice(block.rows);
                Beside::Nothing
            } else {
                let n = block.places.len();
                let range = at..at + n;
                at += n;
                Beside::Exact(
                    &kept[range.start * block.n_vocab..range.end * block.n_vocab],
                    &sums[range],
                )
            };
            let scores = rows::score(&block, chunks, beside)?;
            for (&(chunk, pos), score) in block.places.iter().zip(scores) {
                tally.add(score, self.bytes.of(chunks.target((chunk, pos))));
                if pos + 1 < chunks.scored().end {
                    continue;
                }
                tally.perplexity.end_chunk();
                if let Some(d) = &tally.divergence {
                    let name = if several_models {
                        format!("   {name}")
                    } else {
                        String::new()
                    };
                    let line = report::comparison(chunk + 1, d) + &name;
                    self.lines.push((chunk, i, line));
                }
            }
            Ok(())
        })
    }

    /// Prints the lines of the chunks that are through all models.
    fn show(&mut self, runners: &[Runner<'_>], view: &mut View) -> crate::Result<()> {
        self.lines.sort_by_key(|&(chunk, model, _)| (chunk, model));
        for (_, model, line) in self.lines.drain(..) {
            view.line(&line)?;
            if model + 1 == runners.len() {
                view.step(&report::status(&runners[model].tally));
            }
        }
        Ok(())
    }
}

fn finish(args: &Args, texts: &[Text], runners: &[Runner<'_>]) -> Result<()> {
    let alls: Vec<Tally> = runners.iter().map(|r| Tally::of_all(&r.texts)).collect();
    if args.json {
        let mut object = head(args, runners[0].model, texts);
        object.insert("file_bytes".into(), json!(runners[0].model.file().n_bytes()));
        report::add_scores(&mut object, &alls[0]);
        report::add_texts(&mut object, texts, &runners[0].texts);
        let one = |(runner, all): (&Runner<'_>, &Tally)| {
            let mut object = Map::new();
            object.insert("model".into(), json!(runner.name));
            object.insert("file_bytes".into(), json!(runner.model.file().n_bytes()));
            report::add_scores(&mut object, all);
            report::add_texts(&mut object, texts, &runner.texts);
            Value::Object(object)
        };
        let compared = runners.iter().zip(&alls).skip(1).map(one).collect();
        object.insert("compare".into(), Value::Array(compared));
        return gguf_cli::print_json(&Value::Object(object));
    }
    for (runner, all) in runners.iter().zip(&alls).skip(1) {
        let Some(d) = &all.divergence else { continue };
        let name = &runner.name;
        gguf_cli::print_data(&if d.n() >= MIN_COUNT {
            format!("\n{name}{}", report::summary(&d.summary()))
        } else {
            format!("\n{name}: {} predictions are too few for statistics", d.n())
        })?;
    }
    if texts.len() > 1 {
        for (i, text) in texts.iter().enumerate() {
            let name = text.name.as_deref().unwrap_or_default();
            let rows = runners.iter().map(|r| (r, &r.texts[i]));
            gguf_cli::print_data(&format!("\ntext: {name}\n{}", models_table(rows)))?;
        }
        gguf_cli::print_data("\nall texts")?;
    } else {
        gguf_cli::print_data("")?;
    }
    gguf_cli::print_data(&models_table(runners.iter().zip(&alls)))
}

/// The models below one another, the base first.
fn models_table<'a>(rows: impl Iterator<Item = (&'a Runner<'a>, &'a Tally)>) -> String {
    let row = |(runner, t): (&Runner<'_>, &Tally)| {
        let p = &t.perplexity;
        let mut row = vec![
            runner.name.clone(),
            human_bytes(runner.model.file().n_bytes()),
            format!("{:.4} ± {:.4}", p.value(), p.stderr().unwrap_or(0.0)),
            t.bits_per_byte()
                .map_or("-".into(), |e| format!("{:.4}", e.value)),
        ];
        match t.divergence.as_ref().map(super::kl::Divergence::summary) {
            None => row.extend(["base"].map(str::to_owned)),
            Some(s) => row.extend([
                format!("{:.6} ± {:.6}", s.kld.mean, s.kld.mean_stderr),
                format!("{:.6}", s.kld.median),
                format!("{:.6}", s.kld.p99_9),
                format!("{:.3} %", s.same_top_percent.value),
            ]),
        }
        row.resize(8, String::new());
        row
    };
    let rows: Vec<_> = rows.map(row).collect();
    let headers = [
        "model",
        "size",
        "PPL",
        "bits/byte",
        "mean KLD",
        "median",
        "99.9 %",
        "same top p",
    ];
    table(&headers, &rows, &[1, 2, 3, 4, 5, 6, 7])
}
