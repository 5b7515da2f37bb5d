//! What an evaluation layer by layer keeps in memory.

use std::path::PathBuf;

use gguf_models::spec::Mixer;

use super::weights::stage_bytes;
use crate::kv;
use crate::model::Model;
use crate::recurrent;
use crate::session::{MemoryPlan, Settings, cached};
use crate::{Error, Result};

/// Memory of the program itself: code, metadata, vocabulary, what threads need.
const PROGRAM: u64 = 24 << 20;

/// The share of free memory that is taken where no limit is given, in percent.
const SHARE: u64 = 85;

/// How memory is used.
#[derive(Clone, Debug)]
pub struct LayeredOptions {
    /// Bytes to use at most, all in all; by default most of what is free.
    pub max_memory: Option<u64>,
    /// Bytes of these that the caller needs.
    pub reserve: u64,
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
pub struct LayeredPlan {
    /// Bytes of weights that are held at a time: the layer at work, and what is read ahead.
    pub weights: u64,
    /// Bytes of hidden states.
    pub states: u64,
    /// Whether they are kept in memory.
    pub states_in_memory: bool,
    /// Bytes of activations and of one layer's keys and values.
    pub work: u64,
}

impl LayeredPlan {
    /// The plan for `n_rows` tokens.
    ///
    /// # Errors
    /// Settings that no session can have, too little memory for the largest layer.
    pub(super) fn new(
        model: &Model,
        settings: &Settings,
        n_rows: usize,
        options: &LayeredOptions,
    ) -> Result<Self> {
        let spec = model.spec();
        let all = MemoryPlan::of(spec, settings)?;
        let kv = spec.layers.iter().map(|l| layer_memory(&l.mixer, settings)).max();
        let work = all.scratch.saturating_add(kv.unwrap_or(0));
        let layers = model.parts.layers.iter().map(|l| stage_bytes(&l.matrices()));
        let output = stage_bytes(&vec![&model.parts.output]);
        let largest = layers.max().unwrap_or(0).max(output);
        let states = (n_rows as u64).saturating_mul(spec.n_embd as u64 * size_of::<f32>() as u64);
        let limit = options.max_memory.or_else(LayeredOptions::usual_limit);
        let fixed = work.saturating_add(options.reserve).saturating_add(PROGRAM);
        Self::within(limit.unwrap_or(u64::MAX), fixed, largest, states).map(|plan| Self { work, ..plan })
    }

    /// Shares `limit` out. States stay in memory if half a layer can be read ahead nevertheless.
    fn within(limit: u64, fixed: u64, largest: u64, states: u64) -> Result<Self> {
        let least = fixed.saturating_add(largest);
        let Some(room) = limit.checked_sub(fixed).filter(|&room| room >= largest) else {
            let mib = |n: u64| n.div_ceil(1 << 20);
            return Err(Error::Settings(
                format!(
                    "memory: expected at least {} MiB, of which {} MiB are for the largest layer, found {} MiB; use a \
                     smaller `-ub`, or give more with `--max-memory`",
                    mib(least),
                    mib(largest),
                    limit >> 20
                )
                .into(),
            ));
        };
        let ahead = largest / 2;
        let states_in_memory = room.saturating_sub(states) >= largest.saturating_add(ahead);
        Ok(Self {
            weights: if states_in_memory { room - states } else { room },
            states,
            states_in_memory,
            work: 0,
        })
    }
}

/// Bytes of keys and values, or of the state, of a layer.
fn layer_memory(mixer: &Mixer, settings: &Settings) -> u64 {
    let Settings { n_seq, n_ctx, .. } = *settings;
    let kv = kv::n_bytes(&cached(mixer, settings), settings.types(), n_seq, n_ctx).unwrap_or(u64::MAX);
    match mixer {
        Mixer::DeltaNet(net) => recurrent::n_bytes(net).saturating_mul(n_seq as u64),
        _ => kv,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_move_to_a_file_where_memory_is_short() {
        let plan = |limit| LayeredPlan::within(limit, 100, 40, 50).map(|p| (p.weights, p.states_in_memory));
        assert_eq!(plan(1000).unwrap(), (850, true));
        assert_eq!(plan(210).unwrap(), (60, true));
        assert_eq!(plan(209).unwrap(), (109, false));
        assert_eq!(plan(140).unwrap(), (40, false));
        let e = plan(139).unwrap_err().to_string();
        assert!(e.contains("--max-memory"), "{e}");
    }
}
