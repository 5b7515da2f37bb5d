//! The run: text to chunks, chunks through the model, sums to the file.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::path::Path;

use gguf::atomic::AtomicFile;
use gguf_cli::{Failure, Progress, Result, Unit, count};
use gguf_imatrix_format::{Imatrix, Origin, Weight};
use gguf_runtime::chunks::{ChunkRows, Chunks, Evaluator, Wanted};
use gguf_runtime::{Error, Model, Observe, Session};

use crate::args::{Args, Command, Form};
use crate::collect::{Collector, wants};
use crate::coverage::{Coverage, ENOUGH};
use crate::{compare, convert, files, merge, origin, statistics};
use gguf_runtime::perplexity::score::{LogSum, Perplexity};

/// Runs the program.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Some(Command::Stats(args)) => return statistics::run(args),
        Some(Command::Compare(args)) => return compare::run(args),
        Some(Command::Convert(args)) => return convert::run(args),
        None => {}
    }
    if args.show_statistics {
        return statistics::of_in_files(&args.in_file);
    }
    if args.is_merge() {
        let (force, quiet) = (args.force.force, args.talk.quiet);
        return merge::run(&args.in_file, &args.output, args.output_format, force, quiet);
    }
    args.threads.pool()?.install(|| collect(args))
}

fn collect(args: &Args) -> Result<()> {
    let text = args.text()?;
    check_output(args, &args.inputs(), None)?;
    let model = args.load.open(args.model()?, args.talk.quiet)?;
    let shards = model.file().parts().iter().map(gguf::Part::path);
    let inputs: Vec<&Path> = args.inputs().into_iter().chain(shards).collect();
    let origin = origin::of(model.file(), &text)?;
    check_output(args, &inputs, Some(output_bytes(args, &model, &origin)?))?;
    let tokenizer = model.tokenizer()?;
    let tokens = tokenizer.encode(&text, true, false)?;
    let settings = args.chunks.settings(args.chunks.n_ctx());
    let chunks = Chunks::of_text(tokens, settings, tokenizer.leading())?;
    let session = Session::new(&model, chunks.session_settings(args.chunks.ubatch.ubatch_size))?;
    let mut evaluator = Evaluator::Session(session);

    let stop = Cell::new(false);
    let mut collector = Collector::new(args.process_output, &stop);
    let mut talk = Talk::new(args, &chunks, &stop);
    let wanted = if args.process_output {
        Wanted::All
    } else {
        Wanted::Scored
    };
    let observer: &mut dyn Observe = &mut collector;
    let done = chunks.evaluate(&mut evaluator, wanted, Some(observer), &mut |rows| {
        talk.take(rows)
    });
    if let Some(what) = collector.fault() {
        return Err(Failure::Input(format!("chunk {}: {what}", talk.where_now())));
    }
    if let Some(failure) = talk.failure.take() {
        return Err(failure);
    }
    done?;

    let mut imatrix = Imatrix {
        entries: collector.into_entries(),
        datasets: vec![args.dataset()],
        chunk_count: u32::try_from(chunks.n_chunks()).unwrap_or(u32::MAX),
        chunk_size: u32::try_from(chunks.n_ctx()).unwrap_or(u32::MAX),
        origin: Some(origin),
    };
    if !args.in_file.is_empty() {
        let mut loaded = merge::read_all(&args.in_file)?;
        let notes = loaded.merge(imatrix).map_err(files::failure)?;
        for note in notes {
            gguf_cli::warn(&note);
        }
        imatrix = loaded;
    }
    // The matrix is what the run was for, but a disk that is full must not take the estimate with it.
    talk.estimate()?;
    files::write(
        &imatrix,
        &args.output,
        args.output_format,
        args.force.force,
        &inputs,
    )?;
    talk.finish(args, &imatrix);
    Ok(())
}

/// Refuses now what could not be written in the end.
fn check_output(args: &Args, inputs: &[&Path], n_bytes: Option<u64>) -> Result<()> {
    let (path, force) = (&args.output, args.force.force);
    drop(AtomicFile::create(path, force, inputs, n_bytes)?);
    Ok(())
}

/// Bytes of the output if every weight of the layers meets an input.
fn output_bytes(args: &Args, model: &Model, origin: &Origin) -> Result<u64> {
    let tensors = &model.file().tensors;
    // The embedding meets inputs only where it stands in for the output matrix.
    let embedding = "token_embd.weight";
    let tied = tensors.iter().all(|t| t.name != "output.weight");
    let weights: Vec<Weight<'_>> = tensors
        .iter()
        .filter(|t| t.shape.dims().len() > 1 && (tied || t.name != embedding))
        .filter(|t| wants(&t.name, args.process_output))
        .map(|t| Weight {
            name: &t.name,
            n_cols: t.shape.n_cols(),
            n_mat: t.shape.dim(2),
            has_means: args.output_format == Form::Gguf,
        })
        .collect();
    let dataset = args.dataset();
    match args.output_format {
        Form::Gguf => {
            gguf_imatrix_format::gguf_bytes(&weights, &[dataset], Some(origin)).map_err(files::failure)
        }
        Form::Dat => Ok(gguf_imatrix_format::legacy_bytes(&weights, &dataset)),
    }
}

/// What is said while the model runs.
struct Talk<'a> {
    chunks: &'a Chunks,
    /// Scores, if they are wanted.
    perplexity: Option<Perplexity>,
    progress: Progress,
    /// Chunks that are complete.
    done: usize,
    stop: &'a Cell<bool>,
    /// Why the evaluation was stopped, if the model was not to blame.
    failure: Option<Failure>,
}

impl<'a> Talk<'a> {
    fn new(args: &Args, chunks: &'a Chunks, stop: &'a Cell<bool>) -> Self {
        // On a terminal the running perplexity itself shows progress, and a bar would tear it.
        let silent = args.talk.quiet || (!args.no_ppl && std::io::stdout().is_terminal());
        let progress = Progress::new("imatrix", chunks.n_chunks() as u64, Unit::Chunks, silent);
        let perplexity = (!args.no_ppl).then(Perplexity::default);
        Self {
            chunks,
            perplexity,
            progress,
            done: 0,
            stop,
            failure: None,
        }
    }

    /// The chunk that is being evaluated, or the span of those that go together, counted from 1.
    fn where_now(&self) -> String {
        let (first, n_seq) = (self.done + 1, self.chunks.n_seq());
        let last = self.chunks.n_chunks().min(self.done + n_seq);
        if n_seq == 1 {
            first.to_string()
        } else {
            format!("{first} to {last}")
        }
    }

    fn take(&mut self, block: ChunkRows<'_>) -> gguf_runtime::Result<()> {
        if self.stop.get() {
            return Err(Error::Stopped);
        }
        let scored = self.chunks.scored();
        for (&(chunk, pos), logits) in block.places.iter().zip(block.rows.chunks_exact(block.n_vocab)) {
            if !scored.contains(&pos) {
                continue;
            }
            if let Some(p) = &mut self.perplexity {
                let sum = LogSum::of(logits).map_err(|token| Error::NonFinite {
                    chunk: chunk + 1,
                    pos,
                    token,
                    value: logits[token],
                })?;
                p.add(sum.nll(logits[self.chunks.target((chunk, pos)) as usize]));
            }
            if pos + 1 == scored.end {
                self.end_chunk(chunk)?;
            }
        }
        Ok(())
    }

    fn end_chunk(&mut self, chunk: usize) -> gguf_runtime::Result<()> {
        self.done += 1;
        self.progress.add(1);
        let Some(p) = &self.perplexity else { return Ok(()) };
        let text = format!("[{}]{:.4},", chunk + 1, p.value());
        gguf_cli::write_data(|out| out.write_all(text.as_bytes())).map_err(|failure| {
            self.failure = Some(failure);
            Error::Stopped
        })
    }

    /// Ends the line of running perplexities with the estimate.
    fn estimate(&self) -> Result<()> {
        let Some(p) = &self.perplexity else { return Ok(()) };
        let error = p.stderr().map_or("unknown".to_owned(), |e| format!("{e:.5}"));
        gguf_cli::print_data(&format!("\nFinal estimate: PPL = {:.4} +/- {error}", p.value()))
    }

    fn finish(self, args: &Args, imatrix: &Imatrix) {
        if !args.talk.quiet {
            let coverage = Coverage::of(&imatrix.entries, ENOUGH);
            if coverage.has_experts() {
                self.progress.suspend(|| gguf_cli::say(&coverage.table()));
            }
            let lost = files::lost(imatrix, args.output_format);
            let lines = coverage.warning().into_iter().chain(lost);
            lines.for_each(|line| gguf_cli::warn(&line));
        }
        self.progress.note(&format!(
            "wrote `{}`: {}, {} of {}",
            args.output.display(),
            count(imatrix.entries.len() as u64, "weight"),
            count(imatrix.chunk_count.into(), "chunk"),
            count(imatrix.chunk_size.into(), "token")
        ));
        self.progress.finish();
    }
}
