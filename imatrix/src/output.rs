//! The files that a run writes.

use std::path::{Path, PathBuf};

use gguf::atomic::AtomicFile;
use gguf_cli::{Failure, Result};
use gguf_imatrix_format::{Imatrix, Origin, Weight};
use gguf_runtime::Model;
use gguf_runtime::chunks::Chunks;

use crate::args::{Args, Form, RunFiles};
use crate::collect::collected;
use crate::run::inputs;
use crate::sums::SumSet;
use crate::{files, origin};

/// Where matrices go, and how.
pub(crate) struct Output<'a> {
    args: &'a Args,
    files: RunFiles<'a>,
    /// Files that must not be replaced.
    inputs: Vec<&'a Path>,
    /// The matrix whose sums the run's are added to.
    loaded: Option<Imatrix>,
    /// What the run was made of, when that is known.
    origin: Option<Origin>,
    /// Nothing yet, but no other run begins the same output meanwhile.
    reserved: Option<AtomicFile>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(args: &'a Args, files: RunFiles<'a>) -> Self {
        Self {
            args,
            files,
            inputs: inputs(args, files, None),
            loaded: None,
            origin: None,
            reserved: None,
        }
    }

    /// The same when the model is known.
    ///
    /// # Errors
    /// Loaded sums or counts that do not fit the model's weights.
    pub(crate) fn with_model(
        self,
        model: &'a Model,
        origin: Origin,
        loaded: Option<Imatrix>,
    ) -> Result<Self> {
        for w in model.observed() {
            let entry = loaded.as_ref().and_then(|m| m.entries.get(w.name));
            let misfit = entry.and_then(|e| e.misfit(w.n_cols * w.n_experts, w.n_experts));
            if let Some(what) = misfit {
                return Err(Failure::Input(format!(
                    "weight `{}` of `--in-file`: {what}; the matrix is of another model",
                    w.name
                )));
            }
        }
        Ok(Self {
            inputs: inputs(self.args, self.files, Some(model)),
            loaded,
            origin: Some(origin),
            ..self
        })
    }

    /// Files that must not be replaced.
    pub(crate) fn inputs(&self) -> &[&'a Path] {
        &self.inputs
    }

    /// The name of the output.
    pub(crate) fn path(&self) -> &Path {
        &self.args.output
    }

    /// Refuses now what could not be written in the end, and keeps other runs from the output until then.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        let force = self.args.force.force;
        let file = AtomicFile::create(self.path(), force, &self.inputs, None)?;
        self.reserved = Some(file);
        Ok(())
    }

    /// Whether another run has begun the output: then its checkpoint is the other's.
    pub(crate) fn is_replaced(&self) -> bool {
        self.reserved.as_ref().is_some_and(AtomicFile::is_replaced)
    }

    /// The same when the model is known, and with it its files and the output's size.
    pub(crate) fn check(&self, model: &Model) -> Result<()> {
        let output = (self.path().to_owned(), self.n_bytes(model)?);
        let force = self.args.force.force;
        Ok(AtomicFile::check_all(&[output], force, &self.inputs)?)
    }

    /// The same for copies behind chunk `first`. Those of a run that is resumed are replaced.
    pub(crate) fn check_copies(&self, first: usize, n_chunks: usize) -> Result<()> {
        let every = self.args.save_frequency;
        if every == 0 {
            return Ok(());
        }
        for chunk in (every..=n_chunks).step_by(every).filter(|&c| c > first) {
            drop(AtomicFile::create_derived(
                &self.copy(chunk),
                self.replaces(),
                &self.inputs,
                None,
            )?);
        }
        Ok(())
    }

    fn replaces(&self) -> bool {
        self.args.force.force || self.args.resume
    }

    fn copy(&self, chunk: usize) -> PathBuf {
        let mut path = self.path().as_os_str().to_owned();
        path.push(format!(".at_{chunk}"));
        path.into()
    }

    /// Bytes of the output.
    fn n_bytes(&self, model: &Model) -> Result<u64> {
        let has_means = self.args.form() == Form::Gguf;
        let weights: Vec<Weight<'_>> = collected(model, self.args.process_output)
            .into_iter()
            .map(|w| Weight {
                name: w.name,
                n_cols: w.n_cols as u64,
                n_mat: w.n_experts as u64,
                has_means,
            })
            .collect();
        let dataset = self.files.dataset();
        match self.args.form() {
            Form::Gguf => gguf_imatrix_format::gguf_bytes(&weights, &[dataset], self.origin.as_ref())
                .map_err(files::failure),
            Form::Dat => Ok(gguf_imatrix_format::legacy_bytes(&weights, &dataset)),
        }
    }

    /// The matrix of the first `n_chunks` chunks.
    pub(crate) fn imatrix(&self, chunks: &Chunks, n_chunks: usize, sums: &SumSet) -> Imatrix {
        Imatrix {
            entries: sums.entries(),
            datasets: vec![self.files.dataset()],
            chunk_count: u32::try_from(n_chunks).unwrap_or(u32::MAX),
            chunk_size: u32::try_from(chunks.n_ctx()).unwrap_or(u32::MAX),
            origin: self.origin.clone(),
        }
    }

    /// The run's matrix on top of those that were loaded.
    pub(crate) fn merged(&self, mut own: Imatrix) -> Result<Imatrix> {
        let Some(loaded) = &self.loaded else {
            return Ok(own);
        };
        let mut all = loaded.clone();
        let model = all.origin.as_ref().and_then(|o| o.model.as_ref());
        origin::align(model, &mut own);
        let notes = all.merge(own).map_err(files::failure)?;
        for note in notes.iter().filter(|_| !self.args.talk.quiet) {
            gguf_cli::warn(note);
        }
        Ok(all)
    }

    /// Writes the matrix under its own name.
    pub(crate) fn write(&mut self, imatrix: &Imatrix) -> Result<()> {
        let reserved = self
            .reserved
            .take()
            .expect("a run with an output has it reserved");
        files::write(imatrix, self.args.form(), reserved)
    }

    /// Writes the matrix of the chunks up to `chunk` beside.
    pub(crate) fn write_copy(&self, chunk: usize, imatrix: &Imatrix) -> Result<()> {
        let path = self.copy(chunk);
        let out = AtomicFile::create_derived(&path, self.replaces(), &self.inputs, None)?;
        files::write(imatrix, self.args.form(), out)
    }
}
