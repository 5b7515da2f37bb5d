//! What an evaluation layer by layer keeps in memory.

use std::path::PathBuf;

use gguf_models::spec::Mixer;

use super::weights::stage_bytes;
use crate::forward::Scratch;
use crate::kv;
use crate::model::Model;
use crate::recurrent;
use crate::session::{MemoryPlan, Settings, cached};
use crate::{Error, Result};

/// Memory of the program itself: code, metadata, vocabulary, what threads need.
pub(crate) const PROGRAM: u64 = 16 << 20;

/// The share of free memory that is taken where no limit is given, in percent.
const SHARE: u64 = 85;

/// Tokens of the smallest micro-batch that is chosen where memory is short: with fewer, decoding of weights counts.
const LEAST_UBATCH: usize = 32;

/// How memory is used.
#[derive(Clone, Debug)]
pub struct LayeredOptions {
    /// Bytes to use at most, without what the caller needs; by default most of what is free.
    pub max_memory: Option<u64>,
    /// Folder of the temporary file, if there has to be one.
    pub temp_dir: PathBuf,
}

impl LayeredOptions {
    /// Bytes that are used where no limit is given; `None` where the system does not tell what is free.
    pub fn usual_limit() -> Option<u64> {
        Some(gguf_cli::available_memory()? / 100 * SHARE)
    }
}

/// What is kept where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayeredPlan {
    /// Tokens that go through a layer together: what was asked for, or fewer where memory is short.
    pub(super) n_ubatch: usize,
    /// Bytes of weights that are held at a time: the layer at work, and what is read ahead.
    pub(super) weights: u64,
    /// Bytes of hidden states.
    pub(super) states: u64,
    /// Whether they are kept in memory.
    pub(super) states_in_memory: bool,
}

/// Rows of hidden states.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowCounts {
    /// One for each token.
    pub(super) all: usize,
    /// Those that are wanted behind the last layer.
    pub(super) wanted: usize,
}

/// Bytes that have to be held at the same time.
#[derive(Clone, Copy, Debug)]
struct Needs {
    /// Beside all else: program, tables.
    fixed: u64,
    /// The largest layer.
    layer: u64,
    /// Activations, keys and values of a layer.
    work: u64,
    /// The output matrix.
    output: u64,
    /// What goes with it.
    logits: u64,
}

impl LayeredPlan {
    /// The plan for `n_rows` tokens.
    ///
    /// # Errors
    /// Settings that no session can have, too little memory for the largest layer.
    pub(super) fn new(
        model: &Model,
        settings: &Settings,
        rows: RowCounts,
        options: &LayeredOptions,
    ) -> Result<Self> {
        let row = model.spec().n_embd as u64 * size_of::<f32>() as u64;
        let states = (rows.all as u64).saturating_mul(row);
        let last_states = (rows.wanted as u64).saturating_mul(row);
        let limit = options
            .max_memory
            .or_else(LayeredOptions::usual_limit)
            .unwrap_or(u64::MAX);
        let sizes = std::iter::successors(Some(settings.n_ubatch), |n| {
            Some(n / 2).filter(|&n| n >= LEAST_UBATCH)
        });
        let mut best: Option<(u8, Self)> = None;
        let mut least = u64::MAX;
        for n_ubatch in sizes {
            let needs = Needs::of(
                model,
                &Settings {
                    n_ubatch,
                    ..*settings
                },
            )?;
            least = needs.least();
            let Some(room) = needs.room(limit) else { continue };
            let fit_last = needs.output_room(limit) >= last_states;
            let (comfort, plan) = Self::share(room, needs.layer, states, fit_last, n_ubatch);
            // The largest of those that are as good.
            if best.is_none_or(|(before, _)| comfort > before) {
                best = Some((comfort, plan));
            }
        }
        best.map(|(_, plan)| plan).ok_or_else(|| too_little(limit, least))
    }

    /// Shares `room` out, which has at least a layer, and says how good that is. A file for the states costs reads and
    /// writes of all of them in each layer, and without room to read ahead there is nothing to do while a layer is read;
    /// smaller micro-batches cost less than either. `fit_last` says whether the last states fit beside the output matrix.
    fn share(room: u64, layer: u64, states: u64, fit_last: bool, n_ubatch: usize) -> (u8, Self) {
        let ahead = |part: u64| layer.saturating_add(layer / part);
        let left = room.saturating_sub(states);
        let (comfort, states_in_memory) = if fit_last && left >= ahead(8) {
            (3, true)
        } else if fit_last && left >= layer && states >= layer / 2 {
            (2, true)
        } else {
            (u8::from(room >= ahead(8)), false)
        };
        let plan = Self {
            n_ubatch,
            weights: if states_in_memory { left } else { room },
            states,
            states_in_memory,
        };
        (comfort, plan)
    }
}

fn too_little(limit: u64, least: u64) -> Error {
    let space = gguf_cli::AddressSpace::now();
    let more = space.map_or("", |_| " and a higher limit of the address space (`ulimit -v`)");
    Error::Settings(
        format!(
            "memory for a model: expected at least {} MiB, for the largest layer and what goes with it, found {} MiB beside what \
             results take; give more with `--max-memory`{more}",
            least.div_ceil(1 << 20),
            limit >> 20
        )
        .into(),
    )
}

impl Needs {
    fn of(model: &Model, settings: &Settings) -> Result<Self> {
        let spec = model.spec();
        // It checks the settings too.
        MemoryPlan::of(spec, settings)?;
        let kv = spec.layers.iter().map(|l| layer_memory(&l.mixer, settings)).max();
        let layers = model.parts.layers.iter().map(|l| stage_bytes(&l.matrices()));
        let too_much = || Error::Settings("the context needs more memory than can be addressed".into());
        let scratch = Scratch::n_bytes(spec, settings).ok_or_else(too_much)?;
        let hidden = 2 * settings.n_ubatch as u64 * spec.n_embd as u64 * size_of::<f32>() as u64;
        Ok(Self {
            fixed: PROGRAM.saturating_add(scratch.tables),
            layer: layers.max().unwrap_or(0),
            work: scratch.layers.saturating_add(kv.unwrap_or(0)),
            output: stage_bytes(&vec![&model.parts.output]),
            logits: scratch.logits.saturating_add(hidden),
        })
    }

    /// Bytes without which nothing can be done.
    fn least(&self) -> u64 {
        let layers = self.layer.saturating_add(self.work);
        let output = self.output.saturating_add(self.logits);
        self.fixed.saturating_add(layers.max(output))
    }

    /// What `limit` leaves for hidden states beside the output matrix.
    fn output_room(&self, limit: u64) -> u64 {
        limit
            .saturating_sub(self.fixed)
            .saturating_sub(self.output)
            .saturating_sub(self.logits)
    }

    /// What `limit` leaves for weights of layers and for hidden states.
    fn room(&self, limit: u64) -> Option<u64> {
        (limit >= self.least()).then(|| limit - self.fixed - self.work)
    }
}

/// Bytes of keys and values, or of the state, of a layer.
fn layer_memory(mixer: &Mixer, settings: &Settings) -> u64 {
    let Settings { n_seq, n_ctx, .. } = *settings;
    let kv = kv::n_bytes(&cached(mixer, settings), settings.types(), n_seq, n_ctx).unwrap_or(u64::MAX);
    match mixer {
        Mixer::DeltaNet(net) => recurrent::n_bytes(net)
            .and_then(|bytes| bytes.checked_mul(n_seq as u64))
            .unwrap_or(u64::MAX),
        _ => kv,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_move_to_a_file_where_memory_is_short() {
        let plan = |room, states| {
            let (comfort, plan) = LayeredPlan::share(room, 40, states, true, 8);
            (comfort, plan.weights, plan.states_in_memory)
        };
        assert_eq!(plan(1000, 50), (3, 950, true));
        assert_eq!(plan(95, 50), (3, 45, true));
        assert_eq!(plan(90, 50), (2, 40, true));
        assert_eq!(plan(89, 50), (1, 89, false));
        assert_eq!(plan(44, 50), (0, 44, false));
        assert!(!LayeredPlan::share(1000, 40, 50, false, 8).1.states_in_memory);
        // Few states are read and written soon.
        assert_eq!(plan(54, 10), (1, 54, false));
        assert_eq!(plan(55, 10), (3, 45, true));
    }

    #[test]
    fn layers_and_output_must_both_fit() {
        let needs = Needs {
            fixed: 100,
            layer: 40,
            work: 20,
            output: 50,
            logits: 30,
        };
        assert_eq!(needs.least(), 180);
        assert_eq!(needs.room(179), None);
        assert_eq!(needs.room(180), Some(60));
        assert_eq!((needs.output_room(190), needs.output_room(0)), (10, 0));
        let e = too_little(5 << 20, (9 << 20) + 1).to_string();
        assert!(e.contains("at least 10 MiB") && e.contains("found 5 MiB"), "{e}");
    }
}
