//! Evaluation layer by layer, for models larger than memory.
//!
//! All chunks of a text pass through the first layer, then all through the second, and so on. So each weight is read
//! once, in the order of the layers, by a thread that reads ahead; the hidden states of all tokens are kept between
//! layers, in memory or in a temporary file. Every token sees the same operations on the same values as in the usual
//! order, and an observer sees the rows of each weight in the same order, so results are the same bits.
//!
//! Only chunks can be evaluated so: each is complete when it begins. There is no cache that survives them.

mod plan;
mod states;
mod weights;

use gguf_models::spec::Mixer;

use crate::chunks::{ChunkBatch, ChunkSink, Chunks, Wanted};
use crate::forward::{Env, Pass, Scratch};
use crate::kv::KvCache;
use crate::model::{MixerWeights, Model};
use crate::observe::Observe;
use crate::pool;
use crate::recurrent::Recurrent;
use crate::session::{Logits, Settings, Token, cached};
use crate::{Error, Result};

pub use plan::LayeredOptions;
pub(crate) use plan::PROGRAM;
use plan::{LayeredPlan, RowCounts};
pub use states::HiddenStates;
pub(crate) use weights::Held;
use weights::{Reader, Stage};

/// How far an evaluation is: a batch has passed a layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerStep<'a> {
    /// The layer.
    pub layer: usize,
    /// Layers of the model.
    pub n_layer: usize,
    /// The batch.
    pub batch: &'a ChunkBatch,
    /// Whether all batches have passed the layer.
    pub ends_layer: bool,
    /// The hidden states: behind this layer of the batches up to this one, in front of it of the others.
    pub states: &'a HiddenStates,
}

/// Is told of every step. An error ends the evaluation.
pub type LayerWatch<'a> = dyn FnMut(LayerStep<'_>) -> Result<()> + 'a;

/// Hidden states to go on from.
pub struct LayerStart<'a> {
    /// The first layer that is to be evaluated; there must be one left.
    pub layer: usize,
    /// Fills rows of [`HiddenStates`] from a row on.
    pub fill: &'a mut dyn FnMut(usize, &mut [f32]) -> Result<()>,
}

impl std::fmt::Debug for LayerStart<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayerStart")
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

/// An evaluation of chunks layer by layer.
#[derive(Debug)]
pub struct Layered<'m> {
    model: &'m Model,
    settings: Settings,
    /// Bytes of weights that may be held.
    n_weights: u64,
    scratch: Scratch,
    states: HiddenStates,
    /// The output matrix.
    output: Option<Held>,
    /// Rows of `states` that were made into logits.
    n_done: usize,
}

impl<'m> Layered<'m> {
    /// Prepares the evaluation of `texts`, whose sessions would have `settings` and of which the logits of `wanted` are
    /// wanted.
    ///
    /// # Errors
    /// Settings that no session can have; not enough memory; a folder that takes no temporary file.
    pub fn new(
        model: &'m Model,
        settings: Settings,
        texts: &[&Chunks],
        wanted: Wanted,
        options: &LayeredOptions,
    ) -> Result<Self> {
        let n_rows = texts.iter().map(|c| c.n_chunks() * c.n_ctx()).sum();
        let rows = RowCounts {
            all: n_rows,
            wanted: n_wanted(texts, wanted),
        };
        let plan = LayeredPlan::new(model, &settings, rows, options)?;
        let settings = Settings {
            n_ubatch: plan.n_ubatch,
            ..settings
        };
        let n_embd = model.spec().n_embd;
        let states = if plan.states_in_memory {
            HiddenStates::in_memory(n_rows, n_embd)?
        } else {
            HiddenStates::in_file(n_rows, n_embd, &options.temp_dir, plan.states)?
        };
        Ok(Self {
            scratch: Scratch::new(model, &settings),
            model,
            settings,
            n_weights: plan.weights,
            states,
            output: None,
            n_done: 0,
        })
    }

    /// The model.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// The settings of the sessions that this stands for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes all chunks through all layers, or from where `start` says on. Behind it [`Layered::evaluate_batch`] takes
    /// the batches, each once and in order.
    ///
    /// # Errors
    /// A read that fails, a hidden state that is not finite, what `watch` says.
    pub fn run_layers(
        &mut self,
        texts: &[&Chunks],
        wanted: Wanted,
        start: Option<LayerStart<'_>>,
        mut observer: Option<&mut dyn Observe>,
        watch: &mut LayerWatch<'_>,
    ) -> Result<()> {
        let model = self.model;
        let n_layer = model.parts.layers.len();
        let first = start.as_ref().map_or(0, |s| s.layer);
        assert!(first < n_layer, "layer {first} of {n_layer} is to be evaluated");
        self.n_done = 0;
        if let Some(mut start) = start {
            self.restore(&mut start)?;
        }
        let layers = &model.parts.layers[first..];
        let stages: Vec<Stage<'_>> = layers.iter().map(|l| l.matrices()).collect();
        let mut reader = Reader::start(model, &stages, self.n_weights)?;
        for layer in first..n_layer {
            let held = reader.next()?;
            let observer = observer.as_mut().map(|o| &mut **o as &mut dyn Observe);
            self.run_layer(layer, &held, texts, wanted, observer, watch)?;
        }
        drop(reader);
        // The output needs other buffers.
        self.scratch = Scratch::new(model, &self.settings);
        if self.states.n_rows() > 0 {
            let mut reader = Reader::start(model, &[vec![&model.parts.output]], self.n_weights)?;
            self.output = Some(reader.next()?);
        }
        Ok(())
    }

    /// Takes the hidden states of an evaluation that was interrupted.
    fn restore(&mut self, start: &mut LayerStart<'_>) -> Result<()> {
        let n_embd = self.states.n_embd();
        let at_once = self.settings.n_ubatch;
        let mut rows = vec![0.0; at_once * n_embd];
        for first in (0..self.states.n_rows()).step_by(at_once) {
            let n = at_once.min(self.states.n_rows() - first);
            (start.fill)(first, &mut rows[..n * n_embd])?;
            self.states.write(first, &rows[..n * n_embd])?;
        }
        Ok(())
    }

    fn run_layer(
        &mut self,
        layer: usize,
        held: &Held,
        texts: &[&Chunks],
        wanted: Wanted,
        mut observer: Option<&mut dyn Observe>,
        watch: &mut LayerWatch<'_>,
    ) -> Result<()> {
        let n_layer = self.model.parts.layers.len();
        let mut memory = LayerMemory::new(self.model, &self.settings, layer);
        let mut rows = Rows::default();
        let n_batches: usize = texts.iter().map(|c| c.batches().count()).sum();
        let mut n_past = 0;
        for chunks in texts {
            for batch in chunks.batches() {
                let tokens = chunks.batch_tokens(&batch, wanted);
                for (i, ubatch) in tokens.chunks(self.settings.n_ubatch).enumerate() {
                    let env = Env {
                        model: self.model,
                        held: Some(held),
                        cpu: self.settings.cpu,
                        compute: self.settings.compute,
                        observer: observer.as_mut().map(|o| &mut **o as &mut dyn Observe),
                        latents: memory.latents,
                    };
                    let pass = Pass {
                        env,
                        kv: &mut memory.kv,
                        recurrent: &mut memory.recurrent,
                        scratch: &mut self.scratch,
                    };
                    let at = i * self.settings.n_ubatch;
                    run_ubatch(pass, layer, ubatch, &mut self.states, &mut rows)?;
                    self.check_finite(layer, &batch, at)?;
                }
                n_past += 1;
                watch(LayerStep {
                    layer,
                    n_layer,
                    batch: &batch,
                    ends_layer: n_past == n_batches,
                    states: &self.states,
                })?;
            }
        }
        self.states.truncate(rows.written);
        Ok(())
    }

    /// Refuses a hidden state that is not finite behind a layer, of the micro-batch whose first token is token `first` of
    /// the batch.
    fn check_finite(&self, layer: usize, batch: &ChunkBatch, first: usize) -> Result<()> {
        let Scratch { h, wanted, .. } = &self.scratch;
        let Some(at) = h.iter().position(|v| !v.is_finite()) else {
            return Ok(());
        };
        let row = at / self.states.n_embd();
        // Behind the last layer only rows are left whose logits are wanted.
        let is_last = layer + 1 == self.model.parts.layers.len();
        let (chunk, pos) = batch.place(first + if is_last { wanted[row] } else { row });
        Err(Error::NonFiniteState {
            chunk: chunk + 1,
            pos,
            layer,
            value: h[at],
        })
    }

    /// Makes logits of a batch.
    pub(crate) fn evaluate_batch(
        &mut self,
        chunks: &Chunks,
        batch: &ChunkBatch,
        wanted: Wanted,
        mut observer: Option<&mut dyn Observe>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<()> {
        let n_embd = self.states.n_embd();
        let tokens = chunks.batch_tokens(batch, wanted);
        let index: Vec<usize> = (0..tokens.len()).filter(|&i| tokens[i].logits).collect();
        let (mut kv, mut recurrent) = (
            KvCache::new(&[], self.settings.types(), 1, 1),
            Recurrent::default(),
        );
        for part in index.chunks(self.settings.n_ubatch) {
            self.scratch.wanted.clear();
            self.scratch.wanted.extend_from_slice(part);
            pool::resize(&mut self.scratch.h, part.len() * n_embd, 0.0);
            self.states.read(self.n_done, &mut self.scratch.h)?;
            self.n_done += part.len();
            let env = Env {
                model: self.model,
                held: self.output.as_ref(),
                cpu: self.settings.cpu,
                compute: self.settings.compute,
                observer: observer.as_mut().map(|o| &mut **o as &mut dyn Observe),
                latents: None,
            };
            let mut pass = Pass {
                env,
                kv: &mut kv,
                recurrent: &mut recurrent,
                scratch: &mut self.scratch,
            };
            pass.output(&mut |Logits { index, rows, n_vocab }| {
                let places: Vec<_> = index.iter().map(|&i| batch.place(i)).collect();
                sink(crate::chunks::ChunkRows {
                    places: &places,
                    rows,
                    n_vocab,
                })
            })?;
        }
        Ok(())
    }
}

/// Rows of logits that are wanted of all texts.
fn n_wanted(texts: &[&Chunks], wanted: Wanted) -> usize {
    let of = |c: &&Chunks| match wanted {
        Wanted::All => c.n_chunks() * c.n_ctx(),
        Wanted::Scored => c.n_chunks() * c.scored().len(),
        Wanted::None => 0,
    };
    texts.iter().map(of).sum()
}

/// Keys and values, or the state, of a layer.
struct LayerMemory {
    kv: KvCache,
    recurrent: Recurrent,
    /// Where the first layer of latent attention would have its latent vectors in the cache, so that this layer has them
    /// behind its keys and values.
    latents: Option<usize>,
}

impl LayerMemory {
    fn new(model: &Model, settings: &Settings, layer: usize) -> Self {
        let Settings { n_seq, n_ctx, .. } = *settings;
        let types = settings.types();
        let mixer = &model.spec().layers[layer].mixer;
        let (number, latents) = match &model.parts.layers[layer].mixer {
            MixerWeights::Gqa(w) => (w.kv_layer, None),
            MixerWeights::Mla(w) => (w.kv_layer, Some(w.kv_layer + 1 - w.latent_layer)),
            MixerWeights::DeltaNet(w) => (w.state_layer, None),
        };
        let kv = KvCache::from_layer(number, &cached(mixer, settings), types, n_seq, n_ctx);
        let recurrent = match mixer {
            Mixer::DeltaNet(net) => Recurrent::of_layer(number, *net, n_seq),
            _ => Recurrent::default(),
        };
        Self {
            kv,
            recurrent,
            latents: latents.filter(|_| settings.latent_inputs),
        }
    }
}

/// How far the rows of hidden states are in a layer. They are written where they were read, or before.
#[derive(Debug, Default)]
struct Rows {
    read: usize,
    written: usize,
}

fn run_ubatch(
    mut pass: Pass<'_>,
    layer: usize,
    ubatch: &[Token],
    states: &mut HiddenStates,
    rows: &mut Rows,
) -> Result<()> {
    let n_embd = states.n_embd();
    let is_last = layer + 1 == pass.env.model.parts.layers.len();
    pass.place(ubatch, 0);
    if layer == 0 {
        pass.embed(ubatch)?;
    } else {
        pool::resize(&mut pass.scratch.h, ubatch.len() * n_embd, 0.0);
        states.read(rows.read, &mut pass.scratch.h)?;
    }
    rows.read += ubatch.len();
    pass.mix(layer);
    // Behind the last mixer no other row depends on a row without wanted logits, but an observer wants to see all.
    if is_last && pass.env.observer.is_none() {
        pass.trim(ubatch);
    }
    if !pass.scratch.h.is_empty() {
        pass.feed_forward(layer);
    }
    if is_last && pass.env.observer.is_some() {
        pass.trim(ubatch);
    }
    let h = &pass.scratch.h;
    states.write(rows.written, h)?;
    rows.written += h.len() / n_embd;
    Ok(())
}
