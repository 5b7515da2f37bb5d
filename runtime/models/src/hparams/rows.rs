//! The rows: one per hyper-parameter, with the key, where a converter finds the value, the type and the range.

use serde_json::Value as Json;

use super::{HParams, RopeScaling};
use crate::Result;

/// Where a value goes.
pub type Field<T> = fn(&mut HParams) -> &mut T;

/// The type of a hyper-parameter, its range and where it goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Slot {
    /// A whole number from `min` to `max`; 0 in the field stands for an absent key. u32 in GGUF.
    Count {
        /// Where it goes.
        field: Field<usize>,
        /// The smallest that makes sense: 0 or 1.
        min: u32,
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
    /// Any finite number. f32 in GGUF.
    Finite {
        /// Where it goes.
        field: Field<Option<f32>>,
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
    /// How positions beyond those of the training are scaled: a string.
    RopeScaling {
        /// Where it goes.
        field: Field<RopeScaling>,
    },
    /// No hyper-parameter, but the place where a converter writes `general.file_type`.
    FileType,
}

/// Caps far above any model that exists, so that products of a few of them stay inside u64 and a hostile file
/// cannot ask for absurd amounts of work.
const MAX_LAYERS: u32 = 4096;
pub(super) const MAX_WIDTH: u32 = 1 << 24;
const MAX_HEADS: u32 = 1 << 16;

impl Slot {
    /// A number of layers, at least one.
    pub const fn layers(field: Field<usize>) -> Self {
        Self::counted(field, 1, MAX_LAYERS)
    }

    /// A number of layers, perhaps none.
    pub const fn some_layers(field: Field<usize>) -> Self {
        Self::counted(field, 0, MAX_LAYERS)
    }

    /// Elements of a vector.
    pub const fn width(field: Field<usize>) -> Self {
        Self::counted(field, 1, MAX_WIDTH)
    }

    /// A number of heads or experts, at least one.
    pub const fn heads(field: Field<usize>) -> Self {
        Self::counted(field, 1, MAX_HEADS)
    }

    /// A number of experts, perhaps none.
    pub const fn some_heads(field: Field<usize>) -> Self {
        Self::counted(field, 0, MAX_HEADS)
    }

    /// A number of positions, perhaps none.
    pub const fn positions(field: Field<usize>) -> Self {
        Self::counted(field, 0, u32::MAX)
    }

    /// A factor above 0.
    pub const fn factor(field: Field<f32>) -> Self {
        Self::Float { field, max: 1e15 }
    }

    const fn counted(field: Field<usize>, min: u32, max: u32) -> Self {
        Self::Count { field, min, max }
    }
}

/// Where a converter finds the value in a Hugging Face config.
#[derive(Clone, Copy, Debug)]
pub enum Hf {
    /// At dotted paths; the first that is there counts.
    Paths(&'static [&'static str]),
    /// In the settings of the rotation, where its type is one of `types`. The path is that inside of
    /// [`crate::hf::ROPE_SETTINGS`].
    Rope {
        /// Types of the rotation that have the setting.
        types: &'static [&'static str],
        /// Its names, the first that is there counts.
        names: &'static [&'static str],
        /// Whether these types cannot do without.
        required: bool,
    },
    /// Computed from the config, in the form in which a config would have it.
    Computed(fn(&Json) -> Result<Option<Json>>),
    /// Nowhere: a converter does not write the key.
    Nowhere,
}

/// One hyper-parameter.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The GGUF key without the architecture's name and dot in front.
    pub key: &'static str,
    /// Where a converter finds the value.
    pub hf: Hf,
    /// Type, range and place.
    pub slot: Slot,
    /// Whether no model of the architecture can do without.
    pub required: bool,
}

impl Row {
    /// A row that models can do without, read from the first of some paths.
    pub const fn paths(key: &'static str, paths: &'static [&'static str], slot: Slot) -> Self {
        Self::new(key, Hf::Paths(paths), slot)
    }

    /// A row that models can do without.
    pub const fn new(key: &'static str, hf: Hf, slot: Slot) -> Self {
        Self {
            key,
            hf,
            slot,
            required: false,
        }
    }

    /// The same, but no model can do without.
    #[must_use]
    pub const fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    /// The same from other places.
    #[must_use]
    pub const fn from_paths(self, paths: &'static [&'static str]) -> Self {
        Self {
            hf: Hf::Paths(paths),
            ..self
        }
    }

    /// The same, computed.
    #[must_use]
    pub const fn computed(self, value: fn(&Json) -> Result<Option<Json>>) -> Self {
        Self {
            hf: Hf::Computed(value),
            ..self
        }
    }
}

/// A setting of rotations that are scaled by `YaRN`.
const fn yarn(key: &'static str, names: &'static [&'static str], slot: Slot) -> Row {
    Row::new(
        key,
        Hf::Rope {
            types: &["yarn"],
            names,
            required: false,
        },
        slot,
    )
}

/// `block_count`.
pub const BLOCK_COUNT: Row = Row::paths(
    "block_count",
    &["num_hidden_layers", "n_layers", "n_layer"],
    Slot::layers(|h| &mut h.n_layer),
)
.required();
/// `context_length`.
pub const CONTEXT_LENGTH: Row = Row::paths(
    "context_length",
    &["max_position_embeddings"],
    Slot::Count {
        field: |h| &mut h.n_ctx_train,
        min: 1,
        max: u32::MAX,
    },
)
.required();
/// `embedding_length`.
pub const EMBEDDING_LENGTH: Row = Row::paths(
    "embedding_length",
    &["hidden_size"],
    Slot::width(|h| &mut h.n_embd),
)
.required();
/// `feed_forward_length`.
pub const FEED_FORWARD_LENGTH: Row = Row::paths(
    "feed_forward_length",
    &["intermediate_size"],
    Slot::width(|h| &mut h.n_ff),
);
/// `attention.head_count`.
pub const HEAD_COUNT: Row = Row::paths(
    "attention.head_count",
    &["num_attention_heads"],
    Slot::heads(|h| &mut h.n_head),
)
.required();
/// `attention.head_count_kv`.
pub const HEAD_COUNT_KV: Row = Row::paths(
    "attention.head_count_kv",
    &["num_key_value_heads"],
    Slot::heads(|h| &mut h.n_head_kv),
);
/// `rope.scaling.type`.
pub const ROPE_SCALING_TYPE: Row = Row::new(
    "rope.scaling.type",
    Hf::Rope {
        types: &["linear", "yarn"],
        names: &["rope_type", "type"],
        required: true,
    },
    Slot::RopeScaling {
        field: |h| &mut h.rope_scaling,
    },
);
/// `rope.scaling.factor`.
pub const ROPE_SCALING_FACTOR: Row = Row::new(
    "rope.scaling.factor",
    Hf::Rope {
        types: &["linear", "yarn"],
        names: &["factor"],
        required: true,
    },
    Slot::factor(|h| &mut h.rope_factor),
);
/// `rope.scaling.original_context_length`.
pub const ROPE_ORIGINAL_CONTEXT: Row = Row::new(
    "rope.scaling.original_context_length",
    Hf::Rope {
        types: &["yarn"],
        names: &["original_max_position_embeddings"],
        required: true,
    },
    Slot::positions(|h| &mut h.n_ctx_orig),
);
/// `rope.freq_base`.
pub const ROPE_FREQ_BASE: Row = Row::paths(
    "rope.freq_base",
    &[
        "rope_theta",
        "rope_parameters.rope_theta",
        "rope_parameters.full_attention.rope_theta",
    ],
    Slot::factor(|h| &mut h.rope_base),
);
/// `rope.freq_base_swa`.
pub const ROPE_FREQ_BASE_SWA: Row = Row::paths(
    "rope.freq_base_swa",
    &[
        "rope_parameters.sliding_attention.rope_theta",
        "rope_local_base_freq",
    ],
    Slot::factor(|h| &mut h.rope_base_swa),
);
/// `attention.layer_norm_rms_epsilon`.
pub const RMS_EPSILON: Row = Row::paths(
    "attention.layer_norm_rms_epsilon",
    &["rms_norm_eps"],
    Slot::Float {
        field: |h| &mut h.rms_eps,
        max: 1.0,
    },
)
.required();
/// `expert_count`.
pub const EXPERT_COUNT: Row = Row::paths(
    "expert_count",
    &["num_local_experts", "num_experts", "n_routed_experts"],
    Slot::some_heads(|h| &mut h.n_expert),
);
/// `expert_used_count`.
pub const EXPERT_USED_COUNT: Row = Row::paths(
    "expert_used_count",
    &["num_experts_per_tok"],
    Slot::some_heads(|h| &mut h.n_expert_used),
);
/// `expert_gating_func`.
pub const EXPERT_GATING_FUNC: Row = Row::paths(
    "expert_gating_func",
    &["scoring_func"],
    Slot::Gating {
        field: |h| &mut h.gating,
    },
);
/// `attention.key_length`.
pub const KEY_LENGTH: Row = Row::paths(
    "attention.key_length",
    &["head_dim"],
    Slot::width(|h| &mut h.head_dim_k),
);
/// `attention.value_length`.
pub const VALUE_LENGTH: Row = Row::paths(
    "attention.value_length",
    &["head_dim"],
    Slot::width(|h| &mut h.head_dim_v),
);
/// The place of `general.file_type`.
pub const FILE_TYPE: Row = Row::new("", Hf::Nowhere, Slot::FileType);
/// `vocab_size`. Rows of the embedding count before it.
pub const VOCAB_SIZE: Row = Row::paths("vocab_size", &["vocab_size"], Slot::width(|h| &mut h.n_vocab));
/// `rope.dimension_count`.
pub const ROPE_DIMENSION_COUNT: Row = Row::new(
    "rope.dimension_count",
    Hf::Computed(crate::hf::rotated),
    Slot::width(|h| &mut h.n_rot),
);
/// `expert_feed_forward_length`.
pub const EXPERT_FEED_FORWARD_LENGTH: Row = Row::paths(
    "expert_feed_forward_length",
    &["moe_intermediate_size"],
    Slot::width(|h| &mut h.n_ff_exp),
);
/// `expert_shared_count`.
pub const EXPERT_SHARED_COUNT: Row = Row::paths(
    "expert_shared_count",
    &["n_shared_experts"],
    Slot::some_heads(|h| &mut h.n_expert_shared),
);
/// `expert_shared_feed_forward_length`.
pub const EXPERT_SHARED_FEED_FORWARD_LENGTH: Row = Row::paths(
    "expert_shared_feed_forward_length",
    &["shared_expert_intermediate_size"],
    Slot::width(|h| &mut h.n_ff_shexp),
);
/// `expert_weights_scale`.
pub const EXPERT_WEIGHTS_SCALE: Row = Row::paths(
    "expert_weights_scale",
    &["routed_scaling_factor"],
    Slot::Float {
        field: |h| &mut h.expert_weights_scale,
        max: 1e6,
    },
);
/// `expert_weights_norm`.
pub const EXPERT_WEIGHTS_NORM: Row = Row::paths(
    "expert_weights_norm",
    &["norm_topk_prob"],
    Slot::Flag {
        field: |h| &mut h.expert_weights_norm,
    },
);
/// `leading_dense_block_count`.
pub const LEADING_DENSE_BLOCK_COUNT: Row = Row::paths(
    "leading_dense_block_count",
    &["first_k_dense_replace"],
    Slot::some_layers(|h| &mut h.n_layer_dense),
);
/// `interleave_moe_layer_step`.
pub const INTERLEAVE_MOE_LAYER_STEP: Row = Row::paths(
    "interleave_moe_layer_step",
    &["interleave_moe_layer_step"],
    Slot::some_layers(|h| &mut h.moe_step),
);
/// `nextn_predict_layers`. A converter writes it where the layers are kept.
pub const NEXTN_PREDICT_LAYERS: Row = Row::paths(
    "nextn_predict_layers",
    &["num_nextn_predict_layers"],
    Slot::some_layers(|h| &mut h.n_layer_nextn),
);
/// `attention.sliding_window`.
pub const SLIDING_WINDOW: Row = Row::paths(
    "attention.sliding_window",
    &["sliding_window"],
    Slot::positions(|h| &mut h.n_swa),
);
/// `attention.sliding_window_pattern`: every how many layers one has no window, 0 if all have one.
pub const SLIDING_WINDOW_PATTERN: Row = Row::new(
    "attention.sliding_window_pattern",
    Hf::Nowhere,
    Slot::some_layers(|h| &mut h.swa_period),
);
/// `attention.scale`.
pub const ATTENTION_SCALE: Row = Row::new(
    "attention.scale",
    Hf::Nowhere,
    Slot::factor(|h| &mut h.attention_scale),
);
/// `attention.temperature_length`.
pub const TEMPERATURE_LENGTH: Row = Row::new(
    "attention.temperature_length",
    Hf::Nowhere,
    Slot::positions(|h| &mut h.temperature_length),
);
/// `attention.temperature_scale`.
pub const TEMPERATURE_SCALE: Row = Row::new(
    "attention.temperature_scale",
    Hf::Nowhere,
    Slot::factor(|h| &mut h.temperature_scale),
);
/// `attn_logit_softcapping`.
pub const ATTN_LOGIT_SOFTCAPPING: Row = Row::paths(
    "attn_logit_softcapping",
    &["attn_logit_softcapping"],
    Slot::factor(|h| &mut h.attn_softcap),
);
/// `final_logit_softcapping`.
pub const FINAL_LOGIT_SOFTCAPPING: Row = Row::paths(
    "final_logit_softcapping",
    &["final_logit_softcapping"],
    Slot::factor(|h| &mut h.final_softcap),
);
/// `rope.scaling.attn_factor`.
pub const ROPE_ATTN_FACTOR: Row = Row::new(
    "rope.scaling.attn_factor",
    Hf::Nowhere,
    Slot::factor(|h| &mut h.rope_attn_factor),
);
/// `rope.scaling.yarn_log_multiplier`, as files have it: a tenth of the config's `mscale_all_dim`.
pub const ROPE_YARN_LOG_MULTIPLIER: Row = Row::new(
    "rope.scaling.yarn_log_multiplier",
    Hf::Nowhere,
    Slot::Finite {
        field: |h| &mut h.yarn_log_multiplier,
    },
);

/// The rows that all architectures share, in the order in which the reference converter writes the keys.
pub static GENERIC: &[Row] = &[
    BLOCK_COUNT,
    CONTEXT_LENGTH,
    EMBEDDING_LENGTH,
    FEED_FORWARD_LENGTH,
    HEAD_COUNT,
    HEAD_COUNT_KV,
    ROPE_SCALING_TYPE,
    ROPE_SCALING_FACTOR,
    ROPE_ORIGINAL_CONTEXT,
    yarn(
        "rope.scaling.yarn_ext_factor",
        &["extrapolation_factor"],
        Slot::Finite {
            field: |h| &mut h.yarn_ext_factor,
        },
    ),
    yarn(
        "rope.scaling.yarn_attn_factor",
        &["attention_factor"],
        Slot::factor(|h| &mut h.yarn_attn_factor),
    ),
    yarn(
        "rope.scaling.yarn_beta_fast",
        &["beta_fast"],
        Slot::factor(|h| &mut h.yarn_beta_fast),
    ),
    yarn(
        "rope.scaling.yarn_beta_slow",
        &["beta_slow"],
        Slot::factor(|h| &mut h.yarn_beta_slow),
    ),
    ROPE_FREQ_BASE,
    ROPE_FREQ_BASE_SWA,
    RMS_EPSILON,
    EXPERT_COUNT,
    EXPERT_USED_COUNT,
    Row::paths(
        "expert_group_count",
        &["n_group"],
        Slot::some_heads(|h| &mut h.n_expert_groups),
    ),
    Row::paths(
        "expert_group_used_count",
        &["topk_group"],
        Slot::some_heads(|h| &mut h.n_groups_used),
    ),
    EXPERT_GATING_FUNC,
    KEY_LENGTH,
    VALUE_LENGTH,
    FILE_TYPE,
];

/// Keys of routing that a converter writes for some architectures only, so that every one can read them.
pub static UNWRITTEN: &[Row] = &[
    Row {
        hf: Hf::Nowhere,
        ..ROPE_DIMENSION_COUNT
    },
    Row {
        hf: Hf::Nowhere,
        ..EXPERT_WEIGHTS_SCALE
    },
    Row {
        hf: Hf::Nowhere,
        ..EXPERT_WEIGHTS_NORM
    },
];
