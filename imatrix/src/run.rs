//! The run: text to chunks, chunks through the model, sums to the file.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use gguf::digest::Digest;
use gguf_cli::{Failure, Result};
use gguf_imatrix_format::Imatrix;
use gguf_runtime::chunks::{ChunkBatch, Chunks, Wanted};
use gguf_runtime::{Model, Observe, Session, Settings};

use crate::args::{Args, RunFiles};
use crate::checkpoint::{self, Checkpoint, Reached, RunIdentity};
use crate::collect::{Collector, Wish, wants};
use crate::output::{FromMatrix as _, Output};
use crate::sums::SumSet;
use crate::talk::Talk;

/// Runs the program.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.threads.pool()?.install(|| {
        let files = args.run_files()?;
        let text = args.text(files)?;
        let loaded = args
            .in_file
            .iter()
            .map(|f| Imatrix::read(f).map_err(Failure::from_matrix));
        let loaded = loaded.collect::<Result<Vec<_>>>()?;
        let output = Output::new(args, files);
        if !args.no_collect {
            output.check(None)?;
        }
        let model = args.load.open(files.model, args.talk.quiet)?;
        let output = output.with_model(&model, loaded);
        if !args.no_collect {
            output.check(Some(output.n_bytes(&model)?))?;
        }
        let chunks = chunks(args, &model, &text)?;
        let job = Job {
            args,
            model: &model,
            chunks: &chunks,
            identity: identity(args, &model, &text)?,
            output,
        };
        job.run()
    })
}

/// The text in chunks, without those that are left out.
fn chunks(args: &Args, model: &Model, text: &str) -> Result<Chunks> {
    let tokenizer = model.tokenizer()?;
    let mut tokens = tokenizer.encode(text, true, args.parse_special)?;
    let (n_ctx, first) = (args.chunks.n_ctx(), args.from_chunk);
    if first > 0 {
        let needed = first.saturating_add(2).saturating_mul(n_ctx);
        if tokens.len() < needed {
            return Err(Failure::Input(format!(
                "text: expected at least {needed} tokens, two contexts of {n_ctx} behind the first {first}, found {}",
                tokens.len()
            )));
        }
        tokens.drain(..first * n_ctx);
    }
    Ok(Chunks::of_text(
        tokens,
        args.chunks.settings(n_ctx),
        tokenizer.leading(),
    )?)
}

/// All that the sums depend on, but for the number of chunks.
fn identity(args: &Args, model: &Model, text: &str) -> Result<RunIdentity> {
    let n_ctx = args.chunks.n_ctx();
    let settings = Settings::default();
    let mut identity = RunIdentity::default();
    identity.add("program", env!("CARGO_PKG_VERSION"));
    identity.add("model", Digest(model.fingerprint(n_ctx)?));
    identity.add("text", Digest::of(text.as_bytes()));
    identity.add("context", n_ctx);
    identity.add("first chunk", args.from_chunk);
    identity.add("special tokens", args.parse_special);
    identity.add("output matrix", args.process_output);
    identity.add("share for all experts", args.all_experts.unwrap_or(0.0));
    identity.add("perplexity", !args.no_ppl);
    identity.add("products", settings.compute);
    identity.add("keys", settings.type_k);
    identity.add("values", settings.type_v);
    Ok(identity)
}

/// One run with all that it needs.
struct Job<'a> {
    args: &'a Args,
    model: &'a Model,
    chunks: &'a Chunks,
    identity: RunIdentity,
    output: Output<'a>,
}

impl Job<'_> {
    fn run(self) -> Result<()> {
        let Self { args, chunks, .. } = self;
        if args.no_collect {
            let mut talk = Talk::new(args, chunks, &Reached::default());
            self.evaluate(0, None, &mut talk, &mut |_, _| Ok(()))?;
            return talk.estimate();
        }
        let before = self.resumed()?;
        self.output
            .check_copies(before.reached.chunks, chunks.n_chunks())?;
        let stop = Cell::new(false);
        let wish = Wish {
            output: args.process_output,
            share: args.all_experts.unwrap_or(0.0),
        };
        let mut collector = Collector::new(wish, before.sums, &stop);
        let mut talk = Talk::new(args, chunks, &before.reached);
        let first = before.reached.chunks;
        let mut observer = Watched {
            collector: &mut collector,
            stop: &stop,
        };
        self.evaluate(first, Some(&mut observer), &mut talk, &mut |sums, talk| {
            self.keep(sums, talk)
        })?;
        // The matrix is what the run was for, but a disk that is full must not take the estimate with it.
        talk.estimate()?;
        let imatrix = self.output.imatrix(chunks, chunks.n_chunks(), collector.sums());
        let imatrix = self.output.merged(imatrix)?;
        self.output.write(&imatrix)?;
        checkpoint::remove(&self.checkpoint_path())?;
        talk.finish(&self.output, &imatrix)
    }

    fn checkpoint_path(&self) -> PathBuf {
        checkpoint::path_of(&self.args.output)
    }

    /// What to go on from.
    fn resumed(&self) -> Result<Checkpoint> {
        let anew = Checkpoint {
            run: self.identity.clone(),
            reached: Reached::default(),
            sums: SumSet::default(),
        };
        let path = self.checkpoint_path();
        let (args, n_chunks) = (self.args, self.chunks.n_chunks());
        if !path.exists() {
            if args.resume && !args.talk.quiet {
                gguf_cli::say(&format!("no checkpoint `{}`: starting anew", path.display()));
            }
            return Ok(anew);
        }
        if !args.resume {
            if args.force.force {
                return Ok(anew);
            }
            return Err(Failure::Usage(format!(
                "checkpoint `{}` exists: a run was stopped; go on from it with `--resume`, or start anew with `--force`",
                path.display()
            )));
        }
        let observed = self.model.observed();
        let weights: Vec<_> = observed
            .iter()
            .filter(|w| wants(w.name, args.process_output))
            .map(|w| (w.name, w.n_cols, w.n_experts))
            .collect();
        let found = checkpoint::read(&path, &self.identity, &weights)?;
        let done = found.reached.chunks;
        if done > n_chunks {
            return Err(Failure::Input(format!(
                "checkpoint `{}`: expected at most {n_chunks} chunks, found {done}",
                path.display()
            )));
        }
        if !args.talk.quiet {
            gguf_cli::say(&format!("going on behind chunk {done} of {n_chunks}"));
        }
        Ok(found)
    }

    /// Evaluates the chunks from `first` on. `keep` hears of the sums at each end of a group of chunks.
    fn evaluate(
        &self,
        first: usize,
        mut observer: Option<&mut Watched<'_, '_>>,
        talk: &mut Talk<'_>,
        keep: &mut dyn FnMut(&SumSet, &Talk<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { args, chunks, .. } = self;
        let settings = Settings {
            latent_inputs: observer.is_some() && self.model.has_latent_inputs(),
            ..chunks.session_settings(args.chunks.ubatch.ubatch_size)
        };
        let mut session = Session::new(self.model, settings)?;
        let wanted = match (args.process_output, args.no_ppl) {
            (true, _) => Wanted::All,
            (false, true) => Wanted::None,
            (false, false) => Wanted::Scored,
        };
        let mut start = first;
        while start < chunks.n_chunks() {
            let group = start..self.end_of_group(start);
            for from in (0..chunks.n_ctx()).step_by(chunks.n_batch().min(chunks.n_ctx())) {
                let batch = ChunkBatch {
                    chunks: group.clone(),
                    positions: from..chunks.n_ctx().min(from + chunks.n_batch()),
                };
                let stop = observer.as_ref().map(|o| o.stop);
                let seen = observer.as_mut().map(|o| &mut *o.collector as &mut dyn Observe);
                let done = chunks.evaluate_batch(&batch, &mut session, wanted, seen, &mut |rows| {
                    talk.take(rows, stop)
                });
                if let Some(fault) = observer.as_ref().and_then(|o| o.collector.fault()) {
                    let what = fault.describe(chunks.n_ctx(), self.model.file());
                    return Err(Failure::Input(what));
                }
                if let Some(failure) = talk.failure.take() {
                    return Err(failure);
                }
                done?;
            }
            talk.pass(group.len());
            start = group.end;
            if let Some(o) = &observer {
                keep(o.collector.sums(), talk)?;
            }
        }
        Ok(())
    }

    /// Chunks are evaluated together up to where something is kept.
    fn end_of_group(&self, start: usize) -> usize {
        let n_chunks = self.chunks.n_chunks();
        let every = [self.args.output_frequency, self.args.save_frequency];
        let stops = every
            .into_iter()
            .filter(|&n| n > 0)
            .map(|n| (start / n).saturating_add(1).saturating_mul(n));
        let end = start.saturating_add(self.chunks.n_seq()).min(n_chunks);
        stops.fold(end, usize::min)
    }

    /// Writes what is due behind a group of chunks.
    fn keep(&self, sums: &SumSet, talk: &Talk<'_>) -> Result<()> {
        let Args {
            output_frequency,
            save_frequency,
            ..
        } = *self.args;
        let done = talk.done();
        let is_due = |every: usize| every > 0 && done.is_multiple_of(every);
        if is_due(save_frequency) {
            let imatrix = self.output.imatrix(self.chunks, done, sums);
            self.output.write_copy(done, &self.output.merged(imatrix)?)?;
        }
        if is_due(output_frequency) && done < self.chunks.n_chunks() {
            let reached = Reached::new(done, talk.perplexity());
            // A disk that is full for now must not end a run of hours.
            if let Err(e) = checkpoint::write(&self.checkpoint_path(), &self.identity, &reached, sums) {
                gguf_cli::warn(&format!("no checkpoint at chunk {done}: {e}"));
            }
        }
        Ok(())
    }
}

/// A collector with what tells that it has met a fault.
struct Watched<'c, 's> {
    collector: &'c mut Collector<'s>,
    stop: &'s Cell<bool>,
}

/// The files that an output must not replace.
pub(crate) fn inputs<'a>(args: &'a Args, files: RunFiles<'a>, model: Option<&'a Model>) -> Vec<&'a Path> {
    let shards = model
        .into_iter()
        .flat_map(|m| m.file().parts().iter().map(gguf::Part::path));
    let own = [files.model, files.text].into_iter();
    own.chain(args.in_file.iter().map(PathBuf::as_path))
        .chain(shards)
        .collect()
}
