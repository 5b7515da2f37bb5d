//! Llama 1 to 3, and all that computes the same: Mistral, Mixtral, `SmolLM2`. Rotation of neighbours, no norms of heads,
//! dense or with experts.

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, TensorExpectation};
use crate::hf::{self, Fixed};
use crate::hparams::{self, Row};
use crate::spec::{Ffn, Gqa, Mixer, ModelSpec, Rope, RopeFactors, RopeKind, Window};
use crate::{HParams, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "llama",
    hf_classes: &["LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT, parts::SOFTMAX_NORM_EXPLICIT],
    fixed: &[hf::SILU, Fixed::to(&["norm_topk_prob"], &["true"])],
    rope_types: &["linear", "yarn", "llama3"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        parts::PERMUTED_ATTENTION,
        parts::ATTENTION,
        parts::DENSE,
        parts::MIXTRAL_EXPERTS,
    ],
    computed: parts::llama3_rope_freqs,
    forward,
    tensors,
    ..Architecture::BASE
};

static OWN: &[Row] = &[hparams::VOCAB_SIZE, hparams::ROPE_DIMENSION_COUNT];

static EXPLICIT: &[Row] = &[
    hparams::SLIDING_WINDOW,
    hparams::ATTENTION_SCALE,
    hparams::ROPE_FREQ_BASE.computed(|config| {
        let is_mixtral = hf::class(config) == "MixtralForCausalLM";
        Ok(Some(if is_mixtral { 1e6 } else { 1e4 }.into()))
    }),
];

fn forward(h: &HParams) -> ModelSpec {
    let attention = Gqa {
        // Mistral's, in all layers.
        window: if h.n_swa == 0 {
            Window::All
        } else {
            Window::Last(h.n_swa)
        },
        rope: Some(Rope {
            factors: RopeFactors::Freqs,
            ..passes::rope(h, RopeKind::Norm)
        }),
        ..passes::gqa(h)
    };
    let ffn = if h.n_expert > 0 {
        Ffn::Moe(passes::moe(h, h.n_ff))
    } else {
        Ffn::Dense(passes::dense(h))
    };
    passes::model(h, |_| passes::layer(h, Mixer::Gqa(attention), ffn))
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h).rope_freqs();
    for il in 0..h.n_layer {
        all.attention(il);
        all.maybe_attention_bias(il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        if h.n_expert > 0 {
            all.experts(il, h.n_ff);
        } else {
            all.dense(il);
            all.maybe_bias(il, Role::FfnGate, &[h.n_ff]);
            all.maybe_bias(il, Role::FfnUp, &[h.n_ff]);
            all.maybe_bias(il, Role::FfnDown, &[h.n_embd]);
        }
    }
    all.done()
}
