//! `DeepSeek` V2 and V3, Kimi K2, GLM-4.7-Flash: latent attention, dense layers, then experts with some that every token
//! passes.

use serde_json::Value as Json;

use super::parts::{self, Expect};
use super::passes;
use super::{Architecture, Computed, Mtp, TensorExpectation};
use crate::hf::{self, Cut, Fixed, Heads, Piece, TensorRule};
use crate::hparams::{self, RopeScaling, Row, Slot};
use crate::spec::{Ffn, Gating, Mixer, Mla, ModelSpec, Moe, Rope, RopeKind, Temperature};
use crate::{Error, HParams, Result, Role};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "deepseek2",
    hf_classes: &[
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        GLM,
        "KimiK25ForConditionalGeneration",
    ],
    hparams: &[OWN],
    explicit: &[EXPLICIT, parts::ROPE_EXPLICIT],
    fixed: &[
        hf::SILU,
        Fixed::to(&["attention_bias"], &["false"]),
        Fixed::to(&["moe_layer_freq"], &["1"]),
        Fixed::to(&["rope_interleave"], &["true"]),
        Fixed::to(
            &["topk_method"],
            &["\"noaux_tc\"", "\"greedy\"", "\"group_limited_greedy\""],
        ),
    ],
    rope_types: &["yarn"],
    hf_tensors: &[
        parts::WHOLE_MODEL,
        parts::NORMS,
        LATENT_ATTENTION,
        parts::DENSE,
        parts::ROUTER,
        parts::EXPERTS,
        parts::SHARED_EXPERTS,
        parts::NEXTN,
    ],
    mtp: |config| if is_glm(config) { Mtp::Kept } else { Mtp::Dropped },
    computed: check,
    forward,
    tensors,
    ..Architecture::BASE
};

const GLM: &str = "Glm4MoeLiteForCausalLM";

fn is_glm(config: &Json) -> bool {
    hf::class(config) == GLM
}

fn is_v2(config: &Json) -> bool {
    hf::class(config) == "DeepseekV2ForCausalLM"
}

static OWN: &[Row] = &[
    hparams::BLOCK_COUNT.computed(|c| {
        if is_glm(c) {
            parts::blocks_with_nextn(c)
        } else {
            Ok(hf::lookup(c, "num_hidden_layers").cloned())
        }
    }),
    // All query heads share the latent vector.
    hparams::HEAD_COUNT_KV.computed(|_| Ok(Some(1.into()))),
    hparams::LEADING_DENSE_BLOCK_COUNT.computed(n_dense),
    hparams::VOCAB_SIZE,
    Row::paths(
        "attention.q_lora_rank",
        &["q_lora_rank"],
        Slot::width(|h| &mut h.q_lora_rank),
    ),
    Row::paths(
        "attention.kv_lora_rank",
        &["kv_lora_rank"],
        Slot::width(|h| &mut h.kv_lora_rank),
    )
    .required(),
    hparams::KEY_LENGTH.computed(|c| sum(c, ["kv_lora_rank", "qk_rope_head_dim"])),
    hparams::VALUE_LENGTH.from_paths(&["kv_lora_rank"]),
    Row::paths(
        "attention.key_length_mla",
        &[],
        Slot::width(|h| &mut h.head_dim_k_mla),
    )
    .computed(|c| sum(c, ["qk_nope_head_dim", "qk_rope_head_dim"])),
    Row::paths(
        "attention.value_length_mla",
        &["v_head_dim"],
        Slot::width(|h| &mut h.head_dim_v_mla),
    ),
    hparams::EXPERT_FEED_FORWARD_LENGTH,
    hparams::EXPERT_SHARED_COUNT,
    hparams::EXPERT_WEIGHTS_SCALE,
    // Where it is false the reference writes nothing, and it follows at the end.
    hparams::EXPERT_WEIGHTS_NORM
        .computed(|c| Ok(hf::flag(c, "norm_topk_prob")?.filter(|n| *n).map(Json::from))),
    hparams::ROPE_DIMENSION_COUNT
        .from_paths(&["qk_rope_head_dim"])
        .required(),
    hparams::ROPE_YARN_LOG_MULTIPLIER.computed(log_multiplier),
    hparams::NEXTN_PREDICT_LAYERS.computed(|c| {
        let kept = hf::lookup(c, "num_nextn_predict_layers").filter(|_| is_glm(c));
        Ok(kept.cloned())
    }),
];

/// What a class takes for a setting that its configs leave out. V3 and its kin score by a sigmoid, always.
static EXPLICIT: &[Row] = &[
    hparams::TEMPERATURE_LENGTH,
    hparams::TEMPERATURE_SCALE,
    hparams::EXPERT_GATING_FUNC.computed(|c| Ok(Some(if is_v2(c) { "softmax" } else { "sigmoid" }.into()))),
    hparams::EXPERT_WEIGHTS_NORM.computed(|c| {
        let norm = hf::flag(c, "norm_topk_prob")?;
        Ok(Some(norm.unwrap_or(!is_v2(c)).into()))
    }),
    hparams::EXPERT_WEIGHTS_SCALE.computed(|c| {
        if is_v2(c) {
            return Ok(Some(1.0.into()));
        }
        let object = "config.json `routed_scaling_factor`";
        Err(Error::mismatch(
            object,
            "a number, as it differs between models",
            "nothing",
        ))
    }),
];

fn sum(config: &Json, paths: [&str; 2]) -> Result<Option<Json>> {
    let [a, b] = paths.map(|path| hf::count(config, path));
    Ok(a?.zip(b?).map(|(a, b)| a.saturating_add(b).into()))
}

/// Layers in front of the first with experts.
fn n_dense(config: &Json) -> Result<Option<Json>> {
    let n = hf::count(config, "first_k_dense_replace")?;
    let types = hf::lookup(config, "mlp_layer_types").and_then(Json::as_array);
    let by_type = types.map(|types| types.iter().take_while(|t| *t == "dense").count() as u64);
    match (n, by_type) {
        (Some(n), Some(by_type)) if n != by_type => Err(Error::mismatch(
            "config.json `mlp_layer_types`",
            format!("{n} dense layers, as `first_k_dense_replace` says"),
            by_type,
        )),
        _ => Ok(n.or(by_type).map(Json::from)),
    }
}

/// How the temperature of attention grows with the scaling, in the unit of the reference: a tenth.
fn log_multiplier(config: &Json) -> Result<Option<Json>> {
    if hf::rope_type(config)? != "yarn" {
        return Ok(None);
    }
    let found = |name| hf::rope_setting(config, name);
    match (found("mscale_all_dim"), found("mscale")) {
        (None, None) => Ok(None),
        (Some(all), of) if of == Some(all) => {
            let all = all.as_f64().ok_or_else(|| {
                Error::mismatch("config.json `mscale_all_dim` of the rotation", "a number", all)
            })?;
            Ok(Some((0.1 * all).into()))
        }
        (all, of) => {
            let shown = |v: Option<&Json>| v.map_or("nothing".to_owned(), ToString::to_string);
            Err(Error::mismatch(
                "config.json `mscale` of the rotation",
                format!("{}, the value of `mscale_all_dim`, as loaders assume", shown(all)),
                shown(of),
            ))
        }
    }
}

/// Groups that the selection passes over would still be written, and loaders would use them.
fn check(config: &Json, h: &HParams) -> Result<Vec<Computed>> {
    let greedy = hf::lookup(config, "topk_method").is_some_and(|m| m == "greedy");
    if greedy && h.n_expert_groups > 1 {
        return Err(Error::mismatch(
            "config.json `n_group`",
            "1, as `topk_method` is greedy",
            h.n_expert_groups,
        ));
    }
    Ok(Vec::new())
}

/// Elements of a key head that are not rotated, and of a value head.
fn head_dims(h: &HParams) -> (usize, usize) {
    let (k, v) = if is_mla(h) {
        (h.head_dim_k_mla, h.head_dim_v_mla)
    } else {
        (h.head_dim_k, h.head_dim_v)
    };
    (k.saturating_sub(h.n_rot), v)
}

/// Whether keys and values are made of the latent vector head by head when they are needed. Old files have them as one
/// matrix, and as many key heads as query heads.
fn is_mla(h: &HParams) -> bool {
    h.head_dim_k_mla > 0 && h.head_dim_v_mla > 0
}

static LATENT_ATTENTION: &[TensorRule] = &[
    TensorRule::new(
        "model.layers.{layer}.self_attn.q_proj.weight",
        &[Piece::whole(Role::AttnQ)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.q_a_proj.weight",
        &[Piece::whole(Role::AttnQA)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.q_a_layernorm.weight",
        &[Piece::whole(Role::AttnQANorm)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.q_b_proj.weight",
        &[Piece::whole(Role::AttnQB)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight",
        &[Piece::whole(Role::AttnKvAMqa)],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.kv_a_layernorm.weight",
        &[Piece::whole(Role::AttnKvANorm)],
    ),
    // Keys are multiplied from the other side, so that queries become latent instead.
    TensorRule::new(
        "model.layers.{layer}.self_attn.kv_b_proj.weight",
        &[
            Piece::whole(Role::AttnKB).rows(Cut::Heads(key_rows)).transposed(),
            Piece::whole(Role::AttnVB).rows(Cut::Heads(value_rows)),
        ],
    ),
    TensorRule::new(
        "model.layers.{layer}.self_attn.o_proj.weight",
        &[Piece::whole(Role::AttnOutput)],
    ),
];

fn key_rows(h: &HParams) -> Heads {
    let (nope, v) = head_dims(h);
    Heads {
        n: h.n_head,
        step: nope + v,
        first: 0,
        len: nope,
    }
}

fn value_rows(h: &HParams) -> Heads {
    let (nope, v) = head_dims(h);
    Heads {
        first: nope,
        len: v,
        ..key_rows(h)
    }
}

/// Known by its size.
fn is_glm_flash(h: &HParams) -> bool {
    (47..=48).contains(&h.n_layer) && h.n_vocab == 154_880
}

fn forward(h: &HParams) -> ModelSpec {
    let (n_nope, head_dim_v) = head_dims(h);
    // Multiplied with 0.1 once more than needed, as the reference has it.
    let log_multiplier = h.yarn_log_multiplier.unwrap_or(0.0) / 0.1;
    let is_yarn = h.rope_scaling == RopeScaling::Yarn;
    let growth = if is_yarn {
        passes::log_growth(h.rope_factor, log_multiplier)
    } else {
        1.0
    };
    let rope = passes::rope(h, RopeKind::Norm);
    let attention = Mla {
        n_head: h.n_head,
        n_nope,
        kv_lora_rank: h.kv_lora_rank,
        head_dim_v,
        q_lora_rank: (h.q_lora_rank > 0).then_some(h.q_lora_rank),
        norm: passes::norm(h),
        rope: Rope {
            // The growth of scores takes its place.
            magnitude: if log_multiplier == 0.0 {
                rope.magnitude
            } else {
                h.rope_attn_factor
            },
            ..rope
        },
        scale: growth * growth / ((n_nope + h.n_rot) as f32).sqrt(),
        temperature: (h.temperature_scale != 0.0).then_some(Temperature {
            scale: h.temperature_scale,
            length: passes::or(h.temperature_length, h.n_ctx_orig),
            offset: 0,
        }),
        absorbed: is_mla(h),
    };
    // The reference's files of GLM-4.7-Flash do not say that their scores are sigmoids.
    let usual = if is_glm_flash(h) {
        Gating::Sigmoid
    } else {
        Gating::Softmax
    };
    let experts = Moe {
        norm_weights: h.expert_weights_norm.unwrap_or(false),
        shared: passes::shared(h.n_ff_exp * h.n_expert_shared),
        ..passes::moe_scored_by(h, h.n_ff_exp, usual)
    };
    passes::model(h, |il| {
        let ffn = if il < h.n_layer_dense || h.n_expert == 0 {
            Ffn::Dense(passes::dense(h))
        } else {
            Ffn::Moe(experts)
        };
        passes::layer(h, Mixer::Mla(attention), ffn)
    })
}

fn tensors(h: &HParams) -> Vec<TensorExpectation> {
    let mut all = Expect::model(h);
    for il in 0..h.n_layer {
        latent_attention(&mut all, h, il);
        all.add(il, Role::FfnNorm, &[h.n_embd]);
        if il < h.n_layer_dense || h.n_expert == 0 {
            all.dense(il);
            continue;
        }
        all.experts(il, h.n_ff_exp);
        if h.gating == Some(2) {
            all.add(il, Role::ExpProbsB, &[h.n_expert]);
        } else {
            all.maybe(il, Role::ExpProbsB, &[h.n_expert]);
        }
        if h.n_expert_shared > 0 {
            all.shared_experts(il, h.n_ff_exp * h.n_expert_shared);
        }
        if il >= h.n_layer_main() {
            all.nextn(il);
        }
    }
    all.done()
}

fn latent_attention(all: &mut Expect<'_>, h: &HParams, il: usize) {
    let n = h.n_embd;
    let (nope, v) = head_dims(h);
    let n_q = h.n_head * (nope + h.n_rot);
    all.add(il, Role::AttnNorm, &[n]);
    if h.q_lora_rank > 0 {
        all.add(il, Role::AttnQA, &[n, h.q_lora_rank]);
        all.add(il, Role::AttnQANorm, &[h.q_lora_rank]);
        all.add(il, Role::AttnQB, &[h.q_lora_rank, n_q]);
    } else {
        all.add(il, Role::AttnQ, &[n, n_q]);
    }
    all.add(il, Role::AttnKvAMqa, &[n, h.kv_lora_rank + h.n_rot]);
    all.add(il, Role::AttnKvANorm, &[h.kv_lora_rank]);
    let kv_b = [h.kv_lora_rank, h.n_head * (nope + v)];
    if is_mla(h) {
        all.add(il, Role::AttnKB, &[nope, h.kv_lora_rank, h.n_head]);
        all.add(il, Role::AttnVB, &[h.kv_lora_rank, v, h.n_head]);
        all.maybe(il, Role::AttnKvB, &kv_b);
    } else {
        all.add(il, Role::AttnKvB, &kv_b);
    }
    all.add(il, Role::AttnOutput, &[h.n_head * v, n]);
}

#[cfg(test)]
mod tests {
    use gguf::{Metadata, Value};
    use serde_json::json;

    use super::*;

    /// The keys of a small model of a class, with some settings laid over it.
    fn keys(class: &str, more: &Json) -> Result<Metadata> {
        let mut config = json!({
            "architectures": [class], "num_hidden_layers": 2, "max_position_embeddings": 64, "hidden_size": 32,
            "num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "intermediate_size": 48,
            "q_lora_rank": null, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
            "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_shared_experts": 1,
            "first_k_dense_replace": 1, "routed_scaling_factor": 1.8, "vocab_size": 10, "rope_theta": 1e6,
        });
        let settings = config.as_object_mut().expect("an object");
        settings.extend(more.as_object().expect("an object").clone());
        let mut metadata = Metadata::new();
        hf::metadata(&ARCHITECTURE, &config, 0, &mut metadata)?;
        Ok(metadata)
    }

    fn get(metadata: &Metadata, key: &str) -> Option<Value> {
        metadata.get(&format!("deepseek2.{key}")).cloned()
    }

    #[test]
    fn scores_have_a_function_though_the_config_names_none() {
        for (class, gating, norm) in [
            (GLM, 2, true),
            ("DeepseekV3ForCausalLM", 2, true),
            ("DeepseekV2ForCausalLM", 1, false),
        ] {
            let metadata = keys(class, &json!({})).expect("sound");
            assert_eq!(
                get(&metadata, "expert_gating_func"),
                Some(Value::U32(gating)),
                "{class}"
            );
            assert_eq!(
                get(&metadata, "expert_weights_norm"),
                Some(Value::Bool(norm)),
                "{class}"
            );
        }
        let message = keys(GLM, &json!({"routed_scaling_factor": null})).expect_err("no factor");
        assert!(
            message.to_string().contains("`routed_scaling_factor`"),
            "{message}"
        );
    }

    #[test]
    fn each_scaling_has_its_keys() {
        let yarn = json!({"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 16});
        let mut with_mscale = yarn.clone();
        with_mscale["mscale"] = 0.5.into();
        with_mscale["mscale_all_dim"] = 0.5.into();
        for (settings, scaling, log) in [
            (Json::Null, "none", None),
            (yarn, "yarn", None),
            (with_mscale.clone(), "yarn", Some(Value::F32(0.05))),
        ] {
            let metadata = keys(GLM, &json!({"rope_scaling": settings})).expect("sound");
            assert_eq!(get(&metadata, "rope.scaling.type"), Some(scaling.into()));
            assert_eq!(get(&metadata, "rope.scaling.factor").is_some(), scaling == "yarn");
            assert_eq!(get(&metadata, "rope.scaling.yarn_log_multiplier"), log);
        }
        with_mscale["mscale"] = 1.0.into();
        for (settings, word) in [
            (with_mscale, "`mscale`"),
            (json!({"type": "dynamic", "factor": 2.0}), "dynamic"),
            (
                json!({"type": "yarn", "factor": 2.0}),
                "`original_max_position_embeddings`",
            ),
        ] {
            let message = keys(GLM, &json!({"rope_scaling": settings})).expect_err(word);
            assert!(message.to_string().contains(word), "{message}");
        }
    }

    #[test]
    fn both_forms_of_latent_attention_have_their_tensors() {
        let mut metadata = keys(GLM, &json!({})).expect("sound");
        let has = |metadata: &Metadata, name: &str, shape: &[u64]| {
            let h = HParams::from_gguf("deepseek2", metadata).expect("sound");
            let all = tensors(&h);
            all.iter()
                .any(|t| t.name() == name && t.required && t.shape == shape)
        };
        assert!(has(&metadata, "blk.0.attn_k_b.weight", &[8, 16, 2]));
        assert!(has(&metadata, "blk.0.attn_v_b.weight", &[16, 8, 2]));
        for (key, value) in [("head_count_kv", 2_u32), ("key_length", 12), ("value_length", 8)] {
            metadata.set(format!("deepseek2.attention.{key}"), value.into());
        }
        for key in ["key_length_mla", "value_length_mla"] {
            metadata.remove(&format!("deepseek2.attention.{key}"));
        }
        assert!(has(&metadata, "blk.0.attn_kv_b.weight", &[16, 32]));
        assert!(!has(&metadata, "blk.0.attn_k_b.weight", &[8, 16, 2]));
    }
}
