//! Typed hyper-parameters, read from GGUF metadata by the rows of an architecture.

mod rows;

pub use rows::*;

use gguf::{Array, Metadata, Value};

use crate::arch::Architecture;
use crate::{Error, Result};

/// Groups that experts come in at most.
pub const MAX_EXPERT_GROUPS: usize = 256;

/// Experts that a token uses at most. The most in use are 22, and the reference takes models of at most 512 experts. It
/// bounds the choice, whose time is that of all experts times the chosen.
pub const MAX_EXPERTS_USED: usize = 512;

/// Elements of a key head of a recurrent layer at most. Its state has as many for each element of the layer's values,
/// and no tensor of the file has as many, so that without a bound the state would grow with the square of the file. Delta
/// nets in use have 128, other recurrent layers up to 256.
pub const MAX_STATE_SIZE: usize = 512;

/// How rotary positions beyond those of the training are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RopeScaling {
    /// Not at all, or by the factors of a tensor.
    #[default]
    None,
    /// All positions by one factor.
    Linear,
    /// Each frequency by how often it turns within the training's context.
    Yarn,
    /// By the factors of two tensors, one for short contexts and one for long ones.
    LongRope,
}

impl RopeScaling {
    /// The word in GGUF.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Linear => "linear",
            Self::Yarn => "yarn",
            Self::LongRope => "longrope",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::None, Self::Linear, Self::Yarn, Self::LongRope]
            .into_iter()
            .find(|s| s.word() == word)
    }
}

/// What every architecture's description is computed from: see [`Row`]. A count or factor of 0 and a `None` stand
/// for an absent key, unless a default is known.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are named as the GGUF keys")]
pub struct HParams {
    pub n_vocab: usize,
    pub n_ctx_train: usize,
    pub n_embd: usize,
    /// With those that predict further tokens ([`Self::n_layer_nextn`]), which are the last.
    pub n_layer: usize,
    pub n_layer_nextn: usize,
    pub n_layer_dense: usize,
    pub n_ff: usize,
    pub n_head: usize,
    pub n_head_kv: usize,
    pub head_dim_k: usize,
    pub head_dim_v: usize,
    pub rms_eps: f32,
    pub rope_base: f32,
    pub rope_base_swa: f32,
    pub n_rot: usize,
    pub rope_scaling: RopeScaling,
    pub rope_factor: f32,
    pub rope_attn_factor: f32,
    pub n_ctx_orig: usize,
    pub yarn_ext_factor: Option<f32>,
    pub yarn_attn_factor: f32,
    pub yarn_beta_fast: f32,
    pub yarn_beta_slow: f32,
    pub yarn_log_multiplier: Option<f32>,
    pub q_lora_rank: usize,
    pub kv_lora_rank: usize,
    pub head_dim_k_mla: usize,
    pub head_dim_v_mla: usize,
    pub n_swa: usize,
    /// Whether the key is there, so that a window of 0 is none rather than the usual one.
    pub n_swa_given: bool,
    /// Every how many layers one has no window.
    pub swa_period: usize,
    /// Whether the key is there, so that 0 is none rather than the usual distance.
    pub swa_period_given: bool,
    /// Every how many layers one has attention, in models whose others are recurrent.
    pub full_attention_period: usize,
    pub attention_scale: f32,
    pub attn_softcap: f32,
    pub final_softcap: f32,
    pub temperature_scale: f32,
    pub temperature_length: usize,
    pub embedding_scale: f32,
    pub residual_scale: f32,
    pub logit_scale: f32,
    pub n_expert: usize,
    pub n_expert_used: usize,
    pub n_expert_groups: usize,
    pub n_groups_used: usize,
    pub n_expert_shared: usize,
    pub n_ff_exp: usize,
    pub n_ff_shexp: usize,
    /// Layers from one with experts to the next.
    pub moe_step: usize,
    pub gating: Option<u32>,
    pub expert_weights_norm: Option<bool>,
    pub expert_weights_scale: f32,
    pub ssm_conv_kernel: usize,
    pub ssm_state_size: usize,
    pub ssm_group_count: usize,
    pub ssm_time_step_rank: usize,
    pub ssm_inner_size: usize,
}

/// The rows that a converter writes, in its order. A key that is there again replaces the value of the first, at
/// the first's place.
pub(crate) fn written(arch: &Architecture) -> impl Iterator<Item = &'static Row> {
    arch.generic.iter().chain(arch.hparams.iter().copied().flatten())
}

/// The rows that a file is read by: of each key the last, so that an architecture can replace a generic one.
pub(crate) fn read_by(arch: &Architecture) -> Vec<&'static Row> {
    let mut rows: Vec<&Row> = Vec::new();
    let explicit = arch.explicit.iter().copied().flatten().chain(UNWRITTEN);
    for (row, replaces) in written(arch)
        .map(|row| (row, true))
        .chain(explicit.map(|row| (row, false)))
    {
        match rows.iter_mut().find(|r| r.key == row.key) {
            _ if matches!(row.slot, Slot::FileType) => {}
            Some(before) if replaces => *before = row,
            Some(_) => {}
            None => rows.push(row),
        }
    }
    rows
}

/// Whether an architecture has a row of its own for a key, so that its description is about that key.
pub(crate) fn is_own(arch: &Architecture, key: &str) -> bool {
    let groups = arch.hparams.iter().chain(arch.explicit);
    let own = groups.filter(|group| !std::ptr::eq(**group, GENERIC));
    own.copied().flatten().any(|row| row.key == key)
}

impl HParams {
    /// Reads `{arch}.*` keys. `n_vocab` is the length of `tokenizer.ggml.tokens`, else `{arch}.vocab_size`.
    ///
    /// # Errors
    /// A required key that is absent, a key of another type than needed, a value out of range, and values that
    /// do not fit each other; each names the key.
    pub fn from_gguf(arch: &str, metadata: &Metadata) -> Result<Self> {
        let description = crate::arch::by_name(arch)?;
        let mut h = Self::default();
        for row in read_by(description) {
            read(row, &format!("{arch}.{}", row.key), metadata, &mut h)?;
        }
        let given = |row: &Row| metadata.contains(&format!("{arch}.{}", row.key));
        h.n_swa_given = given(&SLIDING_WINDOW);
        h.swa_period_given = given(&SLIDING_WINDOW_PATTERN);
        // A factor without a type is one of all positions.
        if h.rope_factor != 0.0 && !given(&ROPE_SCALING_TYPE) {
            h.rope_scaling = RopeScaling::Linear;
        }
        h.n_vocab = n_vocab(arch, metadata)?;
        h.fill_defaults(arch)?;
        h.check(arch)?;
        Ok(h)
    }

    /// Layers of the model itself, without those that predict further tokens.
    pub fn n_layer_main(&self) -> usize {
        self.n_layer - self.n_layer_nextn
    }

    /// Query rows: heads times their length.
    pub fn n_embd_q(&self) -> usize {
        self.n_head * self.head_dim_k
    }

    /// Key rows.
    pub fn n_embd_k(&self) -> usize {
        self.n_head_kv * self.head_dim_k
    }

    /// Value rows.
    pub fn n_embd_v(&self) -> usize {
        self.n_head_kv * self.head_dim_v
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
        let defaults = [
            (&mut self.rope_base, 10_000.0),
            (&mut self.rope_factor, 1.0),
            (&mut self.rope_attn_factor, 1.0),
            (&mut self.yarn_beta_fast, 32.0),
            (&mut self.yarn_beta_slow, 1.0),
            (&mut self.expert_weights_scale, 1.0),
        ];
        for (value, default) in defaults {
            *value = if *value == 0.0 { default } else { *value };
        }
        if self.n_ctx_orig == 0 {
            self.n_ctx_orig = self.n_ctx_train;
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
        self.check_experts(arch)?;
        self.check_groups(arch)?;
        self.check_recurrent(arch)?;
        if self.n_layer_nextn >= self.n_layer {
            return Err(Error::mismatch(
                key(arch, "nextn_predict_layers"),
                format!("less than the block count {}", self.n_layer),
                self.n_layer_nextn,
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

    /// Experts of a token.
    fn check_experts(&self, arch: &str) -> Result<()> {
        let (n, used) = (self.n_expert, self.n_expert_used);
        if n == 0 || (1..=n.min(MAX_EXPERTS_USED)).contains(&used) {
            return Ok(());
        }
        let expected = if n > MAX_EXPERTS_USED {
            format!("1 to {MAX_EXPERTS_USED} of the {n} experts")
        } else {
            format!("1 to the expert count {n}")
        };
        Err(Error::mismatch(key(arch, "expert_used_count"), expected, used))
    }

    /// Value heads of recurrent layers share their elements; the state of a head is bounded.
    fn check_recurrent(&self, arch: &str) -> Result<()> {
        if self.ssm_state_size > MAX_STATE_SIZE {
            return Err(Error::mismatch(
                key(arch, "ssm.state_size"),
                format!("1 to {MAX_STATE_SIZE}"),
                self.ssm_state_size,
            ));
        }
        let n = self.ssm_time_step_rank;
        if n > 0 && !self.ssm_inner_size.is_multiple_of(n) {
            return Err(Error::mismatch(
                key(arch, "ssm.inner_size"),
                format!("a multiple of the time step rank {n}"),
                self.ssm_inner_size,
            ));
        }
        Ok(())
    }

    /// Groups of experts, where there are several.
    fn check_groups(&self, arch: &str) -> Result<()> {
        let (n, used) = (self.n_expert_groups, self.n_groups_used);
        if n <= 1 || self.n_expert == 0 {
            return Ok(());
        }
        if n > MAX_EXPERT_GROUPS {
            return Err(Error::mismatch(
                key(arch, "expert_group_count"),
                format!("at most {MAX_EXPERT_GROUPS}"),
                n,
            ));
        }
        if !self.n_expert.is_multiple_of(n) {
            return Err(Error::mismatch(
                key(arch, "expert_group_count"),
                format!("a divisor of the expert count {}", self.n_expert),
                n,
            ));
        }
        // Of the chosen groups there are as many experts as a token uses.
        let least = self.n_expert_used.div_ceil(self.n_expert / n);
        if !(least..=n).contains(&used) {
            return Err(Error::mismatch(
                key(arch, "expert_group_used_count"),
                format!("{least} to the group count {n}"),
                used,
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
        Slot::Count { field, min, max } => {
            let value = match metadata.get(key) {
                Some(Value::Array(array)) => same_for_all(&object, array)?,
                _ => metadata.uint(key)?.unwrap_or(0),
            };
            *field(h) = checked_count(&object, value, min, max)? as usize;
        }
        // Loaders take a factor of 0 as one that is not given.
        Slot::Float { field, max } => match metadata.float(key)?.unwrap_or(0.0) {
            0.0 if !row.required => {}
            value => *field(h) = checked_float(&object, value, max)?,
        },
        Slot::Finite { field } => {
            *field(h) = Some(checked_finite(&object, metadata.float(key)?.unwrap_or(0.0))?);
        }
        Slot::Flag { field } => *field(h) = metadata.bool(key)?,
        Slot::Gating { field } => {
            let value = metadata.uint(key)?.unwrap_or(0);
            *field(h) = Some(checked_gating(&object, value)?);
        }
        Slot::RopeScaling { field } => {
            let word = metadata.string(key)?.unwrap_or_default();
            let known = "`none`, `linear`, `yarn` or `longrope`";
            *field(h) = RopeScaling::from_word(word)
                .ok_or_else(|| Error::mismatch(object, known, format!("`{}`", word.escape_debug())))?;
        }
        Slot::FileType => {}
    }
    Ok(())
}

pub(crate) fn checked_count(object: &str, value: u64, min: u32, max: u32) -> Result<u32> {
    u32::try_from(value)
        .ok()
        .filter(|v| (min..=max).contains(v))
        .ok_or_else(|| Error::mismatch(object, format!("{min} to {max}"), value))
}

pub(crate) fn checked_finite(object: &str, value: f64) -> Result<f32> {
    let narrow = value as f32;
    if narrow.is_finite() {
        Ok(narrow)
    } else {
        Err(Error::mismatch(object, "a finite number", value))
    }
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
    checked_count(&object, n, 1, MAX_WIDTH).map(|n| n as usize)
}

#[cfg(test)]
mod tests;
