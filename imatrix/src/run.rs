//! The run: text to chunks, chunks through the model, sums to the file.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use gguf::digest::Digest;
use gguf_cli::{Failure, Result};
use gguf_imatrix_format::Imatrix;
use gguf_runtime::chunks::{Chunks, Evaluator, Wanted};
use gguf_runtime::{HiddenStates, Input, Model, Observe, Settings};

use crate::args::{Args, Command, RunFiles};
use crate::checkpoint::{self, Checkpoint, Reached, RunIdentity};
use crate::collect::{Collector, Wish, collected};
use crate::output::Output;
use crate::sums::SumSet;
use crate::talk::Talk;
use crate::{compare, convert, fault, merge, model, origin, statistics};

/// Runs the program.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Some(Command::Stats(args)) => return statistics::run(args),
        Some(Command::Compare(args)) => return compare::run(args),
        Some(Command::Convert(args)) => return convert::run(args),
        None => {}
    }
    if args.show_statistics {
        return statistics::of_in_files(args);
    }
    if args.is_merge() {
        return merge::run(args);
    }
    args.threads.pool()?.enter(|| {
        let files = args.run_files()?;
        let text = args.text(files)?;
        let loaded = match args.in_file.as_slice() {
            [] => None,
            in_files => Some(merge::read_all(in_files, args.talk.quiet)?),
        };
        let mut output = Output::new(args, files);
        if !args.no_collect {
            output.reserve()?;
            args.warn_of_name();
        }
        let model = model::open(args, files.model)?;
        let output = output.with_model(&model, origin::of(model.file(), &text)?, loaded)?;
        if !args.no_collect {
            output.check(&model)?;
        }
        let chunks = chunks(args, &model, &text)?;
        let job = Job {
            args,
            model: &model,
            chunks: &chunks,
            identity: identity(args, &model, &text, &chunks)?,
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
fn identity(args: &Args, model: &Model, text: &str, chunks: &Chunks) -> Result<RunIdentity> {
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
    let by_layer = !model.is_resident();
    identity.add(
        "order",
        if by_layer {
            "layer by layer (`--layer-major`)"
        } else {
            "chunk by chunk (`--no-layer-major`)"
        },
    );
    if by_layer {
        identity.add("chunks", chunks.n_chunks());
    }
    Ok(identity)
}

/// One run with all that it needs.
pub(crate) struct Job<'a> {
    pub(crate) args: &'a Args,
    pub(crate) model: &'a Model,
    pub(crate) chunks: &'a Chunks,
    pub(crate) identity: RunIdentity,
    output: Output<'a>,
}

impl Job<'_> {
    fn run(mut self) -> Result<()> {
        let Self { args, chunks, .. } = self;
        let mut evaluator = self.evaluator()?;
        if args.no_collect {
            self.pass_layers(&mut evaluator, None, None)?;
            let mut talk = Talk::new(args, chunks, &Reached::default());
            self.evaluate(&mut evaluator, 0, None, &mut talk)?;
            return talk.estimate();
        }
        let before = self.resumed()?;
        let reached = before.reached;
        if self.model.is_resident() {
            self.output.check_copies(reached.chunks, chunks.n_chunks())?;
        } else if args.save_frequency > 0 && !args.talk.quiet {
            gguf_cli::warn(
                "`--save-frequency`: layer by layer there is no matrix before the last layer; no copies",
            );
        }
        let stop = Cell::new(false);
        let wish = Wish {
            output: args.process_output,
            share: args.all_experts.unwrap_or(0.0),
        };
        let collector = RefCell::new(Collector::new(wish, before.sums, &stop));
        let watched = Watched {
            collector: &collector,
            stop: &stop,
        };
        self.pass_layers(&mut evaluator, Some(&reached), Some(watched))?;
        let mut talk = Talk::new(args, chunks, &reached);
        self.evaluate(&mut evaluator, reached.chunks, Some(watched), &mut talk)?;
        // What becomes of stdout must not take the matrix, nor a full disk the estimate.
        let printed = talk.estimate();
        drop(evaluator);
        let imatrix = self
            .output
            .imatrix(chunks, chunks.n_chunks(), collector.borrow().sums());
        let imatrix = self.output.merged(imatrix)?;
        self.write(&imatrix, collector.borrow().sums(), &talk)?;
        checkpoint::remove(&self.checkpoint_path())?;
        let copies = talk.copies(&self.output);
        let told = talk.finish(&self.output, &imatrix);
        copies.and(told).and(printed)
    }

    /// Writes the matrix. Where that fails, a checkpoint keeps what it is made of, and the error says so.
    fn write(&mut self, imatrix: &Imatrix, sums: &SumSet, talk: &Talk<'_>) -> Result<()> {
        let may_keep =
            self.model.is_resident() && self.args.output_frequency > 0 && !self.output.is_replaced();
        let Err(e) = self.output.write(imatrix) else {
            return Ok(());
        };
        if !may_keep || !self.keep_sums(sums, talk) {
            return Err(e);
        }
        Err(e.and(&format!(
            "; all that was collected is in `{}`: `--resume`, with `--force` if a file is in the way, writes the matrix \
             without evaluating again",
            self.checkpoint_path().display()
        )))
    }

    /// What takes the chunks through the model.
    fn evaluator(&self) -> Result<Evaluator<'_>> {
        let Self {
            args, chunks, model, ..
        } = self;
        let settings = Settings {
            latent_inputs: !args.no_collect && model.has_latent_inputs(),
            ..chunks.session_settings(args.chunks.ubatch.ubatch_size)
        };
        let reserve = model::reserve(args, model);
        Ok(args
            .order
            .evaluator(model, settings, &[chunks], self.wanted(), reserve)?)
    }

    /// The positions whose logits are wanted.
    pub(crate) fn wanted(&self) -> Wanted {
        match (self.args.process_output, self.args.no_ppl) {
            (true, _) => Wanted::All,
            (false, true) => Wanted::None,
            (false, false) => Wanted::Scored,
        }
    }

    /// What a fault that was met says, if there is one.
    pub(crate) fn fault(&self, watched: Option<Watched<'_, '_>>) -> Result<()> {
        let collector = watched.map(|w| w.collector.borrow());
        match collector.as_ref().and_then(|c| c.fault()) {
            Some(fault) => Err(Failure::Input(
                fault.describe(self.chunks.n_ctx(), self.model.file()),
            )),
            None => Ok(()),
        }
    }

    /// Where the checkpoint goes.
    pub(crate) fn checkpoint(&self) -> checkpoint::Target<'_> {
        checkpoint::Target {
            path: self.checkpoint_path(),
            inputs: self.output.inputs(),
        }
    }

    pub(crate) fn checkpoint_path(&self) -> PathBuf {
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
        self.checkpoint().check()?;
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
        let weights = collected(self.model, args.process_output);
        let by_layer = !self.model.is_resident();
        let found = checkpoint::read(&path, &self.identity, &weights, by_layer)?;
        let done = found.reached.chunks;
        if done > n_chunks {
            return Err(Failure::Input(format!(
                "checkpoint `{}`: expected at most {n_chunks} chunks, found {done}",
                path.display()
            )));
        }
        if !args.talk.quiet {
            let layers = found.reached.layers;
            gguf_cli::say(&if layers > 0 {
                format!(
                    "going on behind layer {layers} of {}",
                    self.model.spec().layers.len()
                )
            } else {
                format!("going on behind chunk {done} of {n_chunks}")
            });
        }
        Ok(found)
    }

    /// Evaluates the chunks from `first` on, and keeps what is due at each end of a group of them.
    fn evaluate(
        &self,
        evaluator: &mut Evaluator<'_>,
        first: usize,
        mut watched: Option<Watched<'_, '_>>,
        talk: &mut Talk<'_>,
    ) -> Result<()> {
        let chunks = self.chunks;
        let stop = watched.map(|w| w.stop);
        let mut start = first;
        while start < chunks.n_chunks() {
            let group = start..self.end_of_group(start);
            for batch in chunks.batches_of(group.clone()) {
                let seen = watched.as_mut().map(|w| w as &mut dyn Observe);
                let done = chunks.evaluate_batch(&batch, evaluator, self.wanted(), seen, &mut |rows| {
                    talk.take(rows, stop)
                });
                self.fault(watched)?;
                done.map_err(|e| fault::explain(e, self.model.file()))?;
            }
            talk.pass(group.len());
            start = group.end;
            if let Some(w) = watched
                && self.model.is_resident()
            {
                self.keep(w.collector.borrow().sums(), talk)?;
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
    fn keep(&self, sums: &SumSet, talk: &mut Talk<'_>) -> Result<()> {
        let Args {
            output_frequency,
            save_frequency,
            ..
        } = *self.args;
        let done = talk.done();
        let is_due = |every: usize| every > 0 && done.is_multiple_of(every);
        // In front of the checkpoint: a run that is stopped between the two makes the copy again.
        if is_due(save_frequency) {
            let imatrix = self.output.imatrix(self.chunks, done, sums);
            let copy = self.output.write_copy(done, &self.output.merged(imatrix)?);
            talk.copy(done, copy);
        }
        if is_due(output_frequency) && done < self.chunks.n_chunks() {
            self.keep_sums(sums, talk);
        }
        Ok(())
    }

    /// Writes a checkpoint of the chunks that are done. Returns whether it could.
    fn keep_sums(&self, sums: &SumSet, talk: &Talk<'_>) -> bool {
        let reached = Reached::new(talk.done(), talk.perplexity());
        self.keep_reached(&reached, sums, None)
    }

    /// Writes a checkpoint. Returns whether it could: a disk that is full for now must not end a run of hours.
    pub(crate) fn keep_reached(
        &self,
        reached: &Reached,
        sums: &SumSet,
        states: Option<&HiddenStates>,
    ) -> bool {
        let result = if self.output.is_replaced() {
            let path = self.output.path().display();
            Err(Failure::Usage(format!("another run has begun `{path}`")))
        } else {
            checkpoint::write(&self.checkpoint(), &self.identity, reached, sums, states)
        };
        if let Err(e) = &result {
            let place = match reached.layers {
                0 => format!("chunk {}", reached.chunks),
                layers => format!("layer {layers}"),
            };
            gguf_cli::warn(&format!("no checkpoint behind {place}: {e}"));
        }
        result.is_ok()
    }
}

/// A collector that is looked at while it watches, with what tells that it has met a fault.
#[derive(Clone, Copy)]
pub(crate) struct Watched<'c, 's> {
    pub(crate) collector: &'c RefCell<Collector<'s>>,
    pub(crate) stop: &'s Cell<bool>,
}

impl Observe for Watched<'_, '_> {
    fn input(&mut self, tensor: &str, input: Input<'_>) {
        self.collector.borrow_mut().input(tensor, input);
    }

    fn same_input(&mut self, tensor: &str, first: &str, input: Input<'_>) {
        self.collector.borrow_mut().same_input(tensor, first, input);
    }

    fn share_for_all_experts(&self) -> f64 {
        self.collector.borrow().share_for_all_experts()
    }
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
