//! What the programs of this suite take for a model that they run: the plan that `gguf-run` and the others make.
//!
//! Weights are the mapped file, whole: its pages count as they are touched, and a pass over long texts touches all. A
//! sequence has `n_ctx / n_seq` positions. Beside these a program has its own code and the vocabulary's tables.

use gguf_blocks::Format;
use gguf_models::arch;
use gguf_models::{Attributes, HParams};
use gguf_runtime::{KvType, MemoryPlan, Settings};
use serde::Serialize;

use super::{Run, sum};
use gguf::{GgufFile, Value};
use gguf_cli::Result;

/// Bytes of a program without a model.
const PROGRAM: u64 = 8 << 20;
/// Bytes of the tables of a vocabulary, for each token: its text and its places in what finds it.
const OF_TOKEN: u64 = 160;

/// Sums in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Suite {
    /// All bytes of the file.
    pub(super) file: u64,
    /// Keys, values and recurrent states.
    pub(super) cache: u64,
    /// Activations, logits and tables of positions.
    pub(super) buffers: u64,
    /// The program with the vocabulary's tables.
    pub(super) program: u64,
    pub(super) total: u64,
}

impl Suite {
    /// `None` for a model that the suite does not run, or not with these types or this context.
    pub(super) fn of(
        file: &GgufFile,
        a: Attributes<'_>,
        n_vocab: Option<u64>,
        run: &Run,
    ) -> Result<Option<Self>> {
        let Some(plan) = plan(file, a, n_vocab, run) else {
            return Ok(None);
        };
        let bytes = file.n_bytes();
        let program = PROGRAM.saturating_add(n_vocab.unwrap_or(0).saturating_mul(OF_TOKEN));
        Ok(Some(Self {
            file: bytes,
            cache: plan.kv,
            buffers: plan.scratch,
            program,
            total: sum("the memory", [bytes, plan.kv, plan.scratch, program])?,
        }))
    }
}

fn plan(file: &GgufFile, a: Attributes<'_>, n_vocab: Option<u64>, run: &Run) -> Option<MemoryPlan> {
    let arch = arch::by_name(a.architecture()).ok()?;
    let mut metadata = file.metadata.clone();
    // The tokens may have been passed over.
    let key = a.key("vocab_size");
    if let Some(n) = n_vocab
        && !metadata.contains(&key)
    {
        metadata.set(key, Value::U64(n));
    }
    let hparams = HParams::from_gguf(arch.name, &metadata).ok()?;
    let spec = arch.model(&hparams).ok()?;
    let settings = Settings {
        n_ctx: usize::try_from(run.n_ctx.div_ceil(run.n_seq)).ok()?,
        n_seq: usize::try_from(run.n_seq).ok()?,
        n_ubatch: usize::try_from(run.n_ubatch).ok()?,
        type_k: kv_type(run.type_k)?,
        type_v: kv_type(run.type_v)?,
        ..Settings::default()
    };
    MemoryPlan::of(&spec, &settings).ok()
}

fn kv_type(format: &Format) -> Option<KvType> {
    format.name.parse().ok()
}
