//! Qwen3-MoE: grouped-query attention with a norm of every query and key head, and experts in every layer.

use super::{Architecture, TensorExpectation};
use crate::effects::Neutral;
use crate::hf::{self, Fixed, TensorRule, Transform};
use crate::hparams::{Row, Slot};
use crate::spec::{Activation, Ffn, Gating, Gqa, LayerSpec, Mixer, ModelSpec, Moe, Norm, Rope, RopeKind};
use crate::{Error, HParams, Result, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen3moe",
    hf_classes: &["Qwen3MoeForCausalLM"],
    hparams: &[Row {
        key: "expert_feed_forward_length",
        hf: &["moe_intermediate_size"],
        slot: Slot::width(|h| &mut h.n_ff_exp),
        required: true,
    }],
    // Always a softmax over all experts, and weights that are divided by their sum.
    effects: &[
        ("expert_gating_func", Neutral::One),
        ("expert_weights_norm", Neutral::One),
    ],
    fixed: &[
        hf::SILU,
        hf::NO_ROPE_SCALING,
        Fixed {
            hf: &["norm_topk_prob"],
            is: "true",
            if_absent: true,
        },
        Fixed {
            hf: &["decoder_sparse_step"],
            is: "1",
            if_absent: true,
        },
        Fixed {
            hf: &["mlp_only_layers"],
            is: "[]",
            if_absent: true,
        },
        Fixed {
            hf: &["attention_bias"],
            is: "false",
            if_absent: true,
        },
        Fixed {
            hf: &["use_sliding_window"],
            is: "false",
            if_absent: true,
        },
    ],
    hf_tensors: &[hf::WHOLE_MODEL, hf::LLAMA_ATTENTION, hf::QK_NORM, MOE],
    model,
    tensors,
};

/// The stacks of a layer are written together, in this order, when the last expert has been seen.
const MOE: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.mlp.gate.weight",
        Role::FfnGateInp,
        Transform::Copy,
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight",
        Role::FfnDownExps,
        Transform::StackExperts,
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
        Role::FfnGateExps,
        Transform::StackExperts,
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
        Role::FfnUpExps,
        Transform::StackExperts,
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.down_proj",
        Role::FfnDownExps,
        Transform::Copy,
    ),
    TensorRule::new(
        "model.layers.{layer}.mlp.experts.gate_up_proj",
        Role::FfnGateExps,
        Transform::SplitRows {
            second: Role::FfnUpExps,
        },
    ),
];

fn model(h: &HParams) -> Result<ModelSpec> {
    if h.n_expert == 0 {
        return Err(Error::mismatch(
            "metadata key `qwen3moe.expert_count`",
            "at least 1",
            "nothing",
        ));
    }
    let norm = Norm { eps: h.rms_eps };
    let attention = Gqa {
        n_head: h.n_head,
        n_head_kv: h.n_head_kv,
        head_dim_k: h.head_dim_k,
        head_dim_v: h.head_dim_v,
        qk_norm: Some(norm),
        rope: Some(Rope {
            kind: RopeKind::Neox,
            n_rot: h.n_rot,
            base: h.rope_base,
        }),
        scale: 1.0 / (h.head_dim_k as f32).sqrt(),
    };
    let experts = Moe {
        n_expert: h.n_expert,
        n_used: h.n_expert_used,
        n_ff: h.n_ff_exp,
        gating: Gating::Softmax,
        norm_weights: true,
        weights_scale: h.expert_weights_scale,
        activation: Activation::Silu,
    };
    let layer = LayerSpec {
        norm_in: norm,
        mixer: Mixer::Gqa(attention),
        norm_mid: norm,
        ffn: Ffn::Moe(experts),
    };
    Ok(ModelSpec {
        n_embd: h.n_embd,
        n_vocab: h.n_vocab,
        n_ctx_train: h.n_ctx_train,
        layers: vec![layer; h.n_layer],
        norm_out: norm,
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let n = h.n_embd;
    let (n_q, n_k, n_v) = (
        h.n_head * h.head_dim_k,
        h.n_head_kv * h.head_dim_k,
        h.n_head_kv * h.head_dim_v,
    );
    let mut all = vec![
        TensorExpectation::whole(Role::TokenEmbd, &[n, h.n_vocab]),
        TensorExpectation::whole(Role::OutputNorm, &[n]),
        TensorExpectation::whole(Role::Output, &[n, h.n_vocab]).optional(),
    ];
    for il in 0..h.n_layer {
        let expect = |role, shape: &[usize]| TensorExpectation::layer(role, il, shape);
        all.extend([
            expect(Role::AttnNorm, &[n]),
            expect(Role::AttnQ, &[n, n_q]),
            expect(Role::AttnK, &[n, n_k]),
            expect(Role::AttnV, &[n, n_v]),
            expect(Role::AttnOutput, &[h.n_head * h.head_dim_v, n]),
            expect(Role::AttnQNorm, &[h.head_dim_k]),
            expect(Role::AttnKNorm, &[h.head_dim_k]),
            expect(Role::FfnNorm, &[n]),
            expect(Role::FfnGateInp, &[n, h.n_expert]),
            expect(Role::FfnGateExps, &[n, h.n_ff_exp, h.n_expert]),
            expect(Role::FfnUpExps, &[n, h.n_ff_exp, h.n_expert]),
            expect(Role::FfnDownExps, &[h.n_ff_exp, n, h.n_expert]),
        ]);
    }
    all
}
