//! Typed hyper-parameters: one row each, with the GGUF key, the config paths, the type and the range.

use gguf::{Array, Metadata, Value};

use crate::arch::Architecture;
use crate::{Error, Result};

/// What every architecture's description is computed from. Read from GGUF metadata or from a Hugging Face
/// config by the rows of `arch`.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are named as the GGUF keys")]
pub struct HParams {
    pub n_vocab: usize,
    pub n_ctx_train: usize,
    pub n_embd: usize,
    pub n_layer: usize,
    pub n_ff: usize,
    pub n_head: usize,
    pub n_head_kv: usize,
    pub head_dim_k: usize,
    pub head_dim_v: usize,
    pub rms_eps: f32,
    pub rope_base: f32,
    pub n_rot: usize,
    pub n_expert: usize,
    pub n_expert_used: usize,
    pub n_ff_exp: usize,
    pub gating: Option<u32>,
    pub expert_weights_norm: Option<bool>,
    pub expert_weights_scale: f32,
}

/// Where a value goes.
pub type Field<T> = fn(&mut HParams) -> &mut T;

/// The type of a hyper-parameter, its range and where it goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Slot {
    /// A whole number from 1 to `max`; 0 in the field stands for an absent key. u32 in GGUF.
    Count {
        /// Where it goes.
        field: Field<usize>,
        /// The largest that is believed.
        max: u32,
    },
    /// A finite number above 0 and at most `max`; 0 in the field stands for an absent key. f32 in GGUF.
    Float {
        /// Where it goes.
        field: Field<f32>,
        /// The largest that is believed.
        max: f32,
    },
    /// Yes or no.
    Flag {
        /// Where it goes.
        field: Field<Option<bool>>,
    },
    /// How router logits become probabilities: u32 in GGUF, a word in configs.
    Gating {
        /// Where it goes.
        field: Field<Option<u32>>,
    },
}

/// Caps far above any model that exists, so that products of a few of them stay inside u64 and a hostile file
/// cannot ask for absurd amounts of work.
const MAX_LAYERS: u32 = 4096;
const MAX_WIDTH: u32 = 1 << 24;
const MAX_HEADS: u32 = 1 << 16;

impl Slot {
    /// A number of layers.
    pub const fn layers(field: Field<usize>) -> Self {
        Self::Count {
            field,
            max: MAX_LAYERS,
        }
    }

    /// Elements of a vector.
    pub const fn width(field: Field<usize>) -> Self {
        Self::Count {
            field,
            max: MAX_WIDTH,
        }
    }

    /// A number of heads or experts.
    pub const fn heads(field: Field<usize>) -> Self {
        Self::Count {
            field,
            max: MAX_HEADS,
        }
    }
}

/// One hyper-parameter.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The GGUF key without the architecture's name and dot in front.
    pub key: &'static str,
    /// Dotted paths in a Hugging Face config, the first that is there counts; none if a converter does not
    /// write the key.
    pub hf: &'static [&'static str],
    /// Type, range and place.
    pub slot: Slot,
    /// Whether no model of the architecture can do without.
    pub required: bool,
}

const fn required(key: &'static str, hf: &'static [&'static str], slot: Slot) -> Row {
    Row {
        key,
        hf,
        slot,
        required: true,
    }
}

const fn optional(key: &'static str, hf: &'static [&'static str], slot: Slot) -> Row {
    Row {
        key,
        hf,
        slot,
        required: false,
    }
}

/// The rows that all architectures share, in the order in which the reference converter writes the keys.
pub const GENERIC: &[Row] = &[
    required(
        "block_count",
        &["num_hidden_layers", "n_layers", "n_layer"],
        Slot::layers(|h| &mut h.n_layer),
    ),
    required(
        "context_length",
        &["max_position_embeddings"],
        Slot::Count {
            field: |h| &mut h.n_ctx_train,
            max: u32::MAX,
        },
    ),
    required(
        "embedding_length",
        &["hidden_size"],
        Slot::width(|h| &mut h.n_embd),
    ),
    optional(
        "feed_forward_length",
        &["intermediate_size"],
        Slot::width(|h| &mut h.n_ff),
    ),
    required(
        "attention.head_count",
        &["num_attention_heads"],
        Slot::heads(|h| &mut h.n_head),
    ),
    optional(
        "attention.head_count_kv",
        &["num_key_value_heads"],
        Slot::heads(|h| &mut h.n_head_kv),
    ),
    optional(
        "rope.freq_base",
        &["rope_theta", "rope_parameters.rope_theta"],
        Slot::Float {
            field: |h| &mut h.rope_base,
            max: 1e15,
        },
    ),
    required(
        "attention.layer_norm_rms_epsilon",
        &["rms_norm_eps"],
        Slot::Float {
            field: |h| &mut h.rms_eps,
            max: 1.0,
        },
    ),
    optional(
        "expert_count",
        &["num_local_experts", "num_experts", "n_routed_experts"],
        Slot::heads(|h| &mut h.n_expert),
    ),
    optional(
        "expert_used_count",
        &["num_experts_per_tok"],
        Slot::heads(|h| &mut h.n_expert_used),
    ),
    optional(
        "expert_gating_func",
        &["scoring_func"],
        Slot::Gating {
            field: |h| &mut h.gating,
        },
    ),
    optional(
        "attention.key_length",
        &["head_dim"],
        Slot::width(|h| &mut h.head_dim_k),
    ),
    optional(
        "attention.value_length",
        &["head_dim"],
        Slot::width(|h| &mut h.head_dim_v),
    ),
    optional("rope.dimension_count", &[], Slot::width(|h| &mut h.n_rot)),
    optional(
        "expert_weights_scale",
        &[],
        Slot::Float {
            field: |h| &mut h.expert_weights_scale,
            max: 1e6,
        },
    ),
    optional(
        "expert_weights_norm",
        &[],
        Slot::Flag {
            field: |h| &mut h.expert_weights_norm,
        },
    ),
];

/// The generic rows of an architecture: its own where it has one with the same key.
pub(crate) fn generic_rows(arch: &Architecture) -> impl Iterator<Item = &'static Row> {
    let own = arch.hparams;
    GENERIC
        .iter()
        .map(move |row| own.iter().find(|o| o.key == row.key).unwrap_or(row))
}

/// The rows that only this architecture has.
pub(crate) fn own_rows(arch: &Architecture) -> impl Iterator<Item = &'static Row> {
    arch.hparams
        .iter()
        .filter(|o| GENERIC.iter().all(|row| row.key != o.key))
}

impl HParams {
    const EMPTY: Self = Self {
        n_vocab: 0,
        n_ctx_train: 0,
        n_embd: 0,
        n_layer: 0,
        n_ff: 0,
        n_head: 0,
        n_head_kv: 0,
        head_dim_k: 0,
        head_dim_v: 0,
        rms_eps: 0.0,
        rope_base: 0.0,
        n_rot: 0,
        n_expert: 0,
        n_expert_used: 0,
        n_ff_exp: 0,
        gating: None,
        expert_weights_norm: None,
        expert_weights_scale: 0.0,
    };

    /// Reads `{arch}.*` keys. `n_vocab` is the length of `tokenizer.ggml.tokens`, else `{arch}.vocab_size`.
    ///
    /// # Errors
    /// A required key that is absent, a key of another type than needed, a value out of range, and values that
    /// do not fit each other; each names the key.
    pub fn from_gguf(arch: &str, metadata: &Metadata) -> Result<Self> {
        let description = crate::arch::by_name(arch)?;
        let mut h = Self::EMPTY;
        for row in generic_rows(description).chain(own_rows(description)) {
            read(row, &format!("{arch}.{}", row.key), metadata, &mut h)?;
        }
        h.n_vocab = n_vocab(arch, metadata)?;
        h.fill_defaults(arch)?;
        h.check(arch)?;
        Ok(h)
    }

    /// What the loader of the reference assumes for absent keys.
    fn fill_defaults(&mut self, arch: &str) -> Result<()> {
        if self.n_head_kv == 0 {
            self.n_head_kv = self.n_head;
        }
        if self.head_dim_k == 0 || self.head_dim_v == 0 {
            if !self.n_embd.is_multiple_of(self.n_head) {
                return Err(Error::mismatch(
                    key(arch, "attention.head_count"),
                    format!(
                        "a divisor of the embedding length {}, as no key length is given",
                        self.n_embd
                    ),
                    self.n_head,
                ));
            }
            let head_dim = self.n_embd / self.n_head;
            for dim in [&mut self.head_dim_k, &mut self.head_dim_v] {
                *dim = if *dim == 0 { head_dim } else { *dim };
            }
        }
        if self.n_rot == 0 {
            self.n_rot = self.head_dim_k;
        }
        if self.rope_base == 0.0 {
            self.rope_base = 10_000.0;
        }
        if self.expert_weights_scale == 0.0 {
            self.expert_weights_scale = 1.0;
        }
        Ok(())
    }

    /// What must hold between the values.
    fn check(&self, arch: &str) -> Result<()> {
        if !self.n_head.is_multiple_of(self.n_head_kv) {
            return Err(Error::mismatch(
                key(arch, "attention.head_count_kv"),
                format!("a divisor of the head count {}", self.n_head),
                self.n_head_kv,
            ));
        }
        if !self.n_rot.is_multiple_of(2) || self.n_rot > self.head_dim_k {
            return Err(Error::mismatch(
                key(arch, "rope.dimension_count"),
                format!("an even number up to the key length {}", self.head_dim_k),
                self.n_rot,
            ));
        }
        if self.n_expert > 0 && !(1..=self.n_expert).contains(&self.n_expert_used) {
            return Err(Error::mismatch(
                key(arch, "expert_used_count"),
                format!("1 to the expert count {}", self.n_expert),
                self.n_expert_used,
            ));
        }
        if self.n_head_kv * self.head_dim_k.max(self.head_dim_v) > MAX_WIDTH as usize
            || self.n_head * self.head_dim_k.max(self.head_dim_v) > MAX_WIDTH as usize
        {
            return Err(Error::mismatch(
                key(arch, "attention.head_count"),
                format!("heads of at most {MAX_WIDTH} elements together"),
                format!(
                    "{} heads of {}",
                    self.n_head,
                    self.head_dim_k.max(self.head_dim_v)
                ),
            ));
        }
        Ok(())
    }
}

fn key(arch: &str, key: &str) -> String {
    format!("metadata key `{arch}.{key}`")
}

/// Reads one row into its field.
fn read(row: &Row, key: &str, metadata: &Metadata, h: &mut HParams) -> Result<()> {
    let object = format!("metadata key `{key}`");
    if metadata.get(key).is_none() {
        return if row.required {
            Err(Error::mismatch(object, "a value", "nothing"))
        } else {
            Ok(())
        };
    }
    match row.slot {
        Slot::Count { field, max } => {
            let value = match metadata.get(key) {
                Some(Value::Array(array)) => same_for_all(&object, array)?,
                _ => metadata.uint(key)?.unwrap_or(0),
            };
            *field(h) = checked_count(&object, value, max)? as usize;
        }
        Slot::Float { field, max } => {
            *field(h) = checked_float(&object, metadata.float(key)?.unwrap_or(0.0), max)?;
        }
        Slot::Flag { field } => *field(h) = metadata.bool(key)?,
        Slot::Gating { field } => {
            let value = metadata.uint(key)?.unwrap_or(0);
            *field(h) = Some(checked_gating(&object, value)?);
        }
    }
    Ok(())
}

pub(crate) fn checked_count(object: &str, value: u64, max: u32) -> Result<u32> {
    u32::try_from(value)
        .ok()
        .filter(|v| (1..=max).contains(v))
        .ok_or_else(|| Error::mismatch(object, format!("1 to {max}"), value))
}

pub(crate) fn checked_float(object: &str, value: f64, max: f32) -> Result<f32> {
    let narrow = value as f32;
    if narrow.is_finite() && narrow > 0.0 && narrow <= max {
        Ok(narrow)
    } else {
        Err(Error::mismatch(
            object,
            format!("a number above 0 up to {max:e}"),
            value,
        ))
    }
}

/// 1 softmax, 2 sigmoid, 3 softmax over the chosen, 4 square root of softplus.
pub(crate) fn checked_gating(object: &str, value: u64) -> Result<u32> {
    u32::try_from(value)
        .ok()
        .filter(|v| (1..=4).contains(v))
        .ok_or_else(|| Error::mismatch(object, "1 to 4", value))
}

/// A per-layer array stands for one value where it is the same for all layers.
fn same_for_all(object: &str, array: &Array) -> Result<u64> {
    let values: Vec<i64> = match array {
        Array::U32(v) => v.iter().map(|&x| i64::from(x)).collect(),
        Array::I32(v) => v.iter().map(|&x| i64::from(x)).collect(),
        _ => {
            return Err(Error::mismatch(
                object,
                "a number or an array of 32-bit numbers",
                "another array",
            ));
        }
    };
    match values.split_first() {
        Some((&first, rest)) if first >= 0 && rest.iter().all(|&v| v == first) => Ok(first.unsigned_abs()),
        Some(_) => Err(Error::mismatch(
            object,
            "the same value for every layer",
            "different values",
        )),
        None => Err(Error::mismatch(object, "a value", "an empty array")),
    }
}

fn n_vocab(arch: &str, metadata: &Metadata) -> Result<usize> {
    let key = format!("{arch}.vocab_size");
    let (object, n) = match metadata.strings("tokenizer.ggml.tokens")? {
        Some(tokens) => (
            "tokens in `tokenizer.ggml.tokens`".to_owned(),
            Some(tokens.len() as u64),
        ),
        None => (format!("metadata key `{key}`"), metadata.uint(&key)?),
    };
    let n = n.ok_or_else(|| Error::mismatch(&object, "a vocabulary", "nothing"))?;
    checked_count(&object, n, MAX_WIDTH).map(|n| n as usize)
}

#[cfg(test)]
#[path = "hparams_tests.rs"]
mod tests;
