//! Sequences in progress: positions, KV cache and scratch memory.

use std::io::{Read, Write};

use gguf_blocks::Cpu;
use gguf_models::spec::{DeltaNet, Mixer, Mla, ModelSpec};

use crate::forward::{self, Scratch};
use crate::kv::{self, Heads, KvCache, KvType, KvTypes};
use crate::memory;
use crate::model::Model;
use crate::observe::Observe;
use crate::pool;
use crate::recurrent::{self, Recurrent};
use crate::state::{self, Parts};
use crate::{Error, Result};

/// What a session has room for.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Positions of each sequence.
    pub n_ctx: usize,
    /// Sequences.
    pub n_seq: usize,
    /// Tokens that go through the layers together; longer batches are cut.
    pub n_ubatch: usize,
    /// Level of the kernels.
    pub cpu: Cpu,
    /// Type of cached keys.
    pub type_k: KvType,
    /// Type of cached values.
    pub type_v: KvType,
    /// How weights are multiplied.
    pub compute: Compute,
    /// Whether an observer gets the inputs of `attn_v_b` where latent attention makes keys and values of the latent
    /// vectors: these are cached too then, and attention runs over them as well.
    pub latent_inputs: bool,
}

/// How weights are multiplied with activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// Each type by its own kernels: integer types with activations of 8 bits.
    #[default]
    Fast,
    /// Weights are decoded, activations stay as they are: exact, for comparisons.
    F32,
}

impl std::fmt::Display for Compute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Compute {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let all = [Self::Fast, Self::F32];
        let found = all.into_iter().find(|c| c.name() == text);
        found.ok_or_else(|| format!("expected fast or f32, found `{text}`"))
    }
}

impl Compute {
    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::F32 => "f32",
        }
    }
}

impl Default for Settings {
    /// One sequence of 512 positions, 512 tokens together, the machine's best level.
    fn default() -> Self {
        Self {
            n_ctx: 512,
            n_seq: 1,
            n_ubatch: 512,
            cpu: Cpu::best(),
            type_k: KvType::F16,
            type_v: KvType::F16,
            compute: Compute::Fast,
            latent_inputs: false,
        }
    }
}

impl Settings {
    /// Types of the cache.
    pub(crate) fn types(&self) -> KvTypes {
        KvTypes {
            k: self.type_k,
            v: self.type_v,
        }
    }
}

/// Bytes that a session takes beside the mapped weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Keys and values, and the state of layers that have none.
    pub kv: u64,
    /// Activations, logits and position tables.
    pub scratch: u64,
}

impl MemoryPlan {
    /// The bytes that a session of a model with this description takes.
    ///
    /// # Errors
    /// Settings that no session can have.
    pub fn of(spec: &ModelSpec, settings: &Settings) -> Result<Self> {
        let Settings {
            n_ctx,
            n_seq,
            n_ubatch,
            ..
        } = *settings;
        let limit = i32::MAX as usize;
        for (name, n) in [
            ("context", n_ctx),
            ("number of sequences", n_seq),
            ("ubatch", n_ubatch),
        ] {
            if n == 0 || n > limit {
                return Err(Error::Settings(
                    format!("{name}: expected 1 to {limit}, found {n}").into(),
                ));
            }
        }
        for (i, layer) in spec.layers.iter().enumerate() {
            for heads in cached(&layer.mixer, settings) {
                settings.types().check(i, &heads)?;
            }
        }
        let kv = kv::n_bytes(&cached_layers(spec, settings), settings.types(), n_seq, n_ctx);
        let recurrent = recurrent_layers(spec);
        let states = recurrent
            .iter()
            .try_fold(0u64, |sum, net| sum.checked_add(recurrent::n_bytes(net)?));
        let states = states.and_then(|bytes| bytes.checked_mul(n_seq as u64));
        let kv = kv.and_then(|kv| kv.checked_add(states?));
        let too_much = || Error::Settings("the context needs more memory than can be addressed".into());
        let kv = kv.ok_or_else(too_much)?;
        let scratch = Scratch::n_bytes(spec, settings);
        let scratch = scratch.and_then(|s| s.layers.checked_add(s.logits)?.checked_add(s.tables));
        let scratch = scratch.ok_or_else(too_much)?;
        Ok(Self { kv, scratch })
    }
}

/// One token of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Vocabulary id.
    pub id: u32,
    /// Sequence that it continues.
    pub seq: u32,
    /// Position in the sequence, counted from 0.
    pub pos: u32,
    /// Whether the logits behind it are wanted.
    pub logits: bool,
}

/// Logits of some tokens of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a> {
    /// Place of each row's token in the batch, ascending.
    pub index: &'a [usize],
    /// One row of `n_vocab` logits a token.
    pub rows: &'a [f32],
    /// Elements of a row.
    pub n_vocab: usize,
}

/// Takes logits as they are computed. An error ends the batch.
pub type LogitsSink<'a> = dyn FnMut(Logits<'_>) -> Result<()> + 'a;

/// A model with the state of its sequences. Evaluation runs on the threads of the pool that the caller has entered and
/// allocates nothing once a batch of full size has been seen.
#[derive(Debug)]
pub struct Session<'m> {
    model: &'m Model,
    settings: Settings,
    kv: KvCache,
    recurrent: Recurrent,
    /// Positions taken, by sequence.
    n_past: Vec<u32>,
    /// `n_past` as it will be behind the batch that is being checked.
    n_next: Vec<u32>,
    scratch: Scratch,
    /// First layer of the cache that holds latent vectors for an observer.
    latents: Option<usize>,
}

impl<'m> Session<'m> {
    /// Takes the memory for sequences and scratch.
    ///
    /// # Errors
    /// Settings of zero, or that need more memory than can be addressed or had.
    pub fn new(model: &'m Model, settings: Settings) -> Result<Self> {
        if !model.is_resident() {
            let file = model.file().path().display();
            return Err(Error::Settings(
                format!("`{file}`: expected a model that is mapped or in memory, found one to be read layer by layer")
                    .into(),
            ));
        }
        let plan = Self::plan(model, &settings)?;
        let refuse = || {
            let needed = gguf_cli::human_bytes(plan.kv.saturating_add(plan.scratch));
            let limited = gguf_cli::AddressSpace::now()
                .map_or("", |_| " or raise the limit of the address space (`ulimit -v`)");
            let (n_seq, n_ctx) = (settings.n_seq, settings.n_ctx);
            Error::Settings(
                format!(
                    "no memory for {n_seq} sequences of {n_ctx} tokens: {needed} needed; ask for a shorter context{limited}"
                )
                .into(),
            )
        };
        let total = plan.kv.checked_add(plan.scratch).ok_or_else(refuse)?;
        // The parts below end the program where memory is refused.
        if !memory::can_be_had(total) {
            return Err(refuse());
        }
        Ok(Self {
            kv: KvCache::new(
                &cached_layers(model.spec(), &settings),
                settings.types(),
                settings.n_seq,
                settings.n_ctx,
            ),
            recurrent: Recurrent::new(&recurrent_layers(model.spec()), settings.n_seq),
            n_past: vec![0; settings.n_seq],
            n_next: vec![0; settings.n_seq],
            scratch: Scratch::new(model, &settings),
            latents: settings
                .latent_inputs
                .then(|| attention_layers(model.spec()).len()),
            model,
            settings,
        })
    }

    /// The bytes that a session with these settings takes.
    pub fn plan(model: &Model, settings: &Settings) -> Result<MemoryPlan> {
        MemoryPlan::of(model.spec(), settings)
    }

    /// The model.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// What there is room for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Positions taken of a sequence.
    pub fn n_past(&self, seq: usize) -> usize {
        self.n_past[seq] as usize
    }

    /// Forgets all sequences.
    pub fn clear(&mut self) {
        self.n_past.fill(0);
    }

    /// Shortens a sequence to its first `n` positions and returns how many it has then: `n`, all if it has fewer,
    /// or none where a recurrent state cannot be cut.
    pub fn truncate(&mut self, seq: usize, n: usize) -> usize {
        let kept = self.prefix(seq, n);
        self.n_past[seq] = kept;
        kept as usize
    }

    /// Gives sequence `to` the first `n` positions of sequence `from`, in place of its own, and returns how many it
    /// has then, as [`Session::truncate`] does.
    pub fn copy_sequence(&mut self, from: usize, to: usize, n: usize) -> usize {
        let kept = self.prefix(from, n);
        if from != to {
            self.kv.copy(from, to, kept as usize);
            if kept > 0 {
                self.recurrent.copy(from, to);
            }
        }
        self.n_past[to] = kept;
        kept as usize
    }

    /// How many of the first `n` positions of a sequence can be had alone.
    fn prefix(&self, seq: usize, n: usize) -> u32 {
        let past = self.n_past[seq];
        let kept = past.min(u32::try_from(n).unwrap_or(u32::MAX));
        if kept < past && !self.recurrent.is_empty() {
            return 0;
        }
        kept
    }

    /// Writes the state of a sequence: its positions, keys, values and recurrent states.
    ///
    /// # Errors
    /// A sequence that the session does not have, and what writing meets.
    pub fn save_state(&self, seq: usize, to: &mut dyn Write) -> Result<()> {
        self.check_sequence(seq)?;
        state::save(
            Parts {
                model: self.model,
                kv: &self.kv,
                recurrent: &self.recurrent,
                seq,
            },
            self.n_past[seq],
            to,
        )
    }

    /// Gives a sequence the state that [`Session::save_state`] wrote, in place of its own. Reads just as many bytes.
    ///
    /// # Errors
    /// A sequence that the session does not have, a state of another model, of other types of the cache, of more
    /// positions than there is room for, or damaged. The sequence is empty then.
    pub fn load_state(&mut self, seq: usize, from: &mut dyn Read) -> Result<()> {
        self.check_sequence(seq)?;
        self.n_past[seq] = 0;
        self.n_past[seq] = state::load(self.model, &mut self.kv, &mut self.recurrent, seq, from)?;
        Ok(())
    }

    fn check_sequence(&self, seq: usize) -> Result<()> {
        let n_seq = self.settings.n_seq;
        if seq < n_seq {
            return Ok(());
        }
        Err(Error::State(
            format!("expected a sequence below {n_seq}, found {seq}").into(),
        ))
    }

    /// Evaluates a batch and returns the rows of logits that were asked for, in the order of the batch.
    pub fn decode(&mut self, batch: &[Token]) -> Result<Vec<f32>> {
        let mut rows = Vec::new();
        self.decode_with(batch, None, &mut |logits| {
            rows.extend_from_slice(logits.rows);
            Ok(())
        })?;
        Ok(rows)
    }

    /// Evaluates a batch: shows the input of every product to `observer` and hands logits to `sink`, in the
    /// order of the batch, in pieces.
    ///
    /// The tokens of a sequence must have the positions that follow those it has. The batch is checked as a
    /// whole before anything is computed; a batch with a bad token changes nothing.
    pub fn decode_with(
        &mut self,
        batch: &[Token],
        mut observer: Option<&mut dyn Observe>,
        sink: &mut LogitsSink<'_>,
    ) -> Result<()> {
        self.check(batch)?;
        let mut first = 0;
        for ubatch in batch.chunks(self.settings.n_ubatch) {
            let env = forward::Env {
                model: self.model,
                held: None,
                cpu: self.settings.cpu,
                compute: self.settings.compute,
                observer: observer.as_mut().map(|o| &mut **o as &mut dyn Observe),
                latents: self.latents,
            };
            let pass = forward::Pass {
                env,
                kv: &mut self.kv,
                recurrent: &mut self.recurrent,
                scratch: &mut self.scratch,
            };
            let run = || pass.run(ubatch, first, sink);
            let done = if ubatch.len() == 1 {
                pool::generating(run)
            } else {
                run()
            };
            for t in ubatch {
                self.n_past[t.seq as usize] = t.pos + 1;
            }
            done?;
            first += ubatch.len();
        }
        Ok(())
    }

    fn check(&mut self, batch: &[Token]) -> Result<()> {
        let Settings { n_ctx, n_seq, .. } = self.settings;
        let n_vocab = self.model.spec().n_vocab;
        self.n_next.clone_from(&self.n_past);
        for (index, t) in batch.iter().enumerate() {
            if t.id as usize >= n_vocab {
                return Err(Error::TokenId {
                    index,
                    id: t.id,
                    n_vocab,
                });
            }
            let Some(expected) = self.n_next.get_mut(t.seq as usize) else {
                return Err(Error::Sequence {
                    index,
                    seq: t.seq,
                    n_seq,
                });
            };
            if t.pos != *expected {
                return Err(Error::Position {
                    index,
                    seq: t.seq,
                    expected: *expected,
                    found: t.pos,
                });
            }
            if t.pos as usize >= n_ctx {
                return Err(Error::ContextFull { seq: t.seq, n_ctx });
            }
            *expected += 1;
        }
        Ok(())
    }
}

fn attention_layers(spec: &ModelSpec) -> Vec<Heads> {
    let layers = spec.layers.iter();
    layers.filter_map(|l| Heads::of(&l.mixer)).collect()
}

/// What the cache has: the layers of attention, and behind them the latent vectors that an observer asks for.
fn cached_layers(spec: &ModelSpec, settings: &Settings) -> Vec<Heads> {
    let mut all = attention_layers(spec);
    all.extend(spec.layers.iter().filter_map(|l| latent(&l.mixer, settings)));
    all
}

/// The same for one layer.
pub(crate) fn cached(mixer: &Mixer, settings: &Settings) -> Vec<Heads> {
    Heads::of(mixer)
        .into_iter()
        .chain(latent(mixer, settings))
        .collect()
}

/// Latent vectors that an observer asks for.
fn latent(mixer: &Mixer, settings: &Settings) -> Option<Heads> {
    match mixer {
        Mixer::Mla(m) if settings.latent_inputs => Some(Heads::from(&Mla { absorbed: true, ..*m })),
        _ => None,
    }
}

fn recurrent_layers(spec: &ModelSpec) -> Vec<DeltaNet> {
    let layers = spec.layers.iter();
    layers
        .filter_map(|l| match l.mixer {
            Mixer::DeltaNet(net) => Some(net),
            _ => None,
        })
        .collect()
}
