//! Each rule of the mixtures and of the fallbacks, on models of sixteen layers made for it.

use gguf::Shape;
use gguf_models::file_type;

use super::mixture::ROWS;
use super::tests::{facts, shape, wish};
use super::*;

/// Layers of sixteen that get more bits.
const MORE: &str = "0 1 4 7 10 13 14 15";
const ALL: &str = "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15";
const MIDDLE: &str = "2 3 4 5 6 7 8 9 10 11 12 13";

/// A model: architecture, query heads a key head, experts, layers.
type Model = (&'static str, usize, usize, usize);

const ONE: Model = ("llama", 1, 0, 16);
const GQA: Model = ("llama", 4, 0, 16);
const EXPERTS_4: Model = ("llama", 1, 4, 16);
const EXPERTS_8: Model = ("llama", 1, 8, 16);
const FALCON: Model = ("falcon", 4, 0, 16);
const FALCON_8: Model = ("falcon", 4, 8, 16);

/// A type, and the layers that get it.
type Given = (&'static str, &'static str);

/// File type (`+` for an imatrix), model, tensor of each layer, and the layers that get another type than the base.
const LAYERS: &[(&str, Model, &str, &[Given])] = &[
    // The smallest types.
    ("IQ2_XXS", GQA, "attn_v", &[("Q4_K", ALL)]),
    ("IQ1_S", EXPERTS_4, "attn_qkv", &[("Q4_K", ALL)]),
    ("IQ2_XS", ONE, "attn_v", &[("Q2_K", ALL)]),
    ("IQ2_M", ONE, "attn_kv_b", &[("IQ3_S", ALL)]),
    ("IQ2_S", ONE, "attn_v", &[("IQ3_S", ALL)]),
    ("IQ1_M", EXPERTS_8, "attn_k", &[("Q4_K", ALL)]),
    ("IQ1_M", EXPERTS_4, "attn_k", &[]),
    ("IQ1_M", ONE, "ffn_down", &[("Q2_K", "0 1")]),
    ("IQ2_M", ONE, "ffn_down", &[("IQ3_S", "0 1")]),
    ("IQ2_XXS", EXPERTS_8, "attn_output", &[("Q5_K", ALL)]),
    ("IQ1_S", ONE, "attn_output", &[("IQ2_XXS", ALL)]),
    ("IQ2_S", ONE, "attn_output", &[("IQ3_S", ALL)]),
    ("IQ2_XS", ONE, "attn_output", &[]),
    ("IQ2_XS", ONE, "ffn_up", &[]),
    // Values.
    ("Q2_K", ONE, "attn_v", &[("Q3_K", ALL)]),
    ("Q2_K", GQA, "attn_v", &[("Q4_K", ALL)]),
    ("Q2_K_S", ONE, "attn_v", &[]),
    ("Q2_K_S", GQA, "attn_v", &[("Q4_K", ALL)]),
    ("IQ3_XXS", GQA, "attn_v", &[("Q4_K", ALL)]),
    ("IQ3_XXS", ONE, "attn_v", &[("IQ3_S", ALL)]),
    ("IQ3_XXS+", ONE, "attn_v", &[]),
    ("IQ3_XS", GQA, "attn_v", &[("Q4_K", ALL)]),
    ("IQ3_S", GQA, "attn_v", &[("Q4_K", ALL)]),
    ("IQ3_S", ONE, "attn_v", &[]),
    ("IQ3_M", ONE, "attn_v", &[("Q4_K", ALL)]),
    (
        "Q3_K_M",
        ONE,
        "attn_v",
        &[("Q5_K", "0 1"), ("Q4_K", "2 3 4 5 6 7 8 9 10 11 12 13 14 15")],
    ),
    ("Q3_K_L", ONE, "attn_qkv", &[("Q5_K", ALL)]),
    ("Q3_K_S", ONE, "attn_v", &[]),
    ("IQ4_NL", GQA, "attn_v", &[("Q5_K", ALL)]),
    ("IQ4_XS", GQA, "attn_v", &[("Q5_K", ALL)]),
    ("IQ4_XS", ONE, "attn_v", &[]),
    ("Q4_K_M", ONE, "attn_v", &[("Q6_K", MORE)]),
    ("Q5_K_M", ONE, "attn_qkv", &[("Q6_K", MORE)]),
    ("Q4_K_S", ONE, "attn_v", &[("Q5_K", "0 1 2 3")]),
    ("Q4_0", EXPERTS_8, "attn_v", &[("Q8_0", ALL)]),
    ("Q4_K_M", EXPERTS_8, "attn_v", &[("Q8_0", ALL)]),
    // Keys and queries.
    ("Q4_K_M", EXPERTS_8, "attn_k", &[("Q8_0", ALL)]),
    ("Q4_K_M", EXPERTS_8, "attn_q", &[]),
    ("IQ3_XS", ONE, "attn_k", &[("IQ3_XXS", ALL)]),
    ("IQ3_XS", ONE, "attn_q", &[("IQ3_XXS", ALL)]),
    ("IQ3_XXS", ONE, "attn_k", &[("IQ2_S", ALL)]),
    ("IQ3_XXS", EXPERTS_8, "attn_k", &[("Q8_0", ALL)]),
    ("IQ3_XXS", EXPERTS_8, "attn_q", &[("IQ2_S", ALL)]),
    // Down projections.
    ("Q2_K", ONE, "ffn_down", &[("Q3_K", ALL)]),
    ("Q2_K_S", ONE, "ffn_down", &[("Q4_K", "0 1")]),
    (
        "IQ3_XXS",
        ONE,
        "ffn_down",
        &[("Q4_K", "0 1"), ("Q3_K", "2 3 4 5 6 7 8 9 10 11 12 13 14 15")],
    ),
    ("IQ3_XXS+", ONE, "ffn_down", &[]),
    (
        "Q3_K_M",
        ONE,
        "ffn_down",
        &[("Q5_K", "0"), ("Q4_K", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15")],
    ),
    (
        "Q3_K_M",
        FALCON,
        "ffn_down",
        &[("Q5_K", "0"), ("Q4_K", "1 4 7 10 13 14 15")],
    ),
    ("IQ3_M", ONE, "ffn_down", &[("Q4_K", "0 1")]),
    ("IQ3_M", EXPERTS_8, "ffn_down_exps", &[("Q4_K", MORE)]),
    ("Q3_K_L", ONE, "ffn_down", &[("Q5_K", ALL)]),
    ("Q3_K_L", FALCON, "ffn_down", &[("Q4_K", ALL)]),
    ("Q4_K_M", ONE, "ffn_down", &[("Q6_K", MORE)]),
    ("Q4_K_M", EXPERTS_4, "ffn_down_shexp", &[("Q6_K", MORE)]),
    (
        "Q4_K_M",
        FALCON,
        "ffn_down",
        &[("Q6_K", "0"), ("Q5_K", "1 4 7 10 13 14 15")],
    ),
    ("Q5_K_M", ONE, "ffn_down", &[("Q6_K", MORE)]),
    ("IQ4_NL", ONE, "ffn_down", &[("Q5_K", "0 1")]),
    ("IQ4_XS", ONE, "ffn_down", &[("Q5_K", "0 1")]),
    ("IQ4_XS+", ONE, "ffn_down", &[]),
    ("Q4_K_S", ONE, "ffn_down", &[("Q5_K", "0 1")]),
    ("Q4_K_S", FALCON, "ffn_down", &[]),
    ("Q4_0", ONE, "ffn_down", &[]),
    ("Q4_0+", ONE, "ffn_down", &[("Q4_1", "0 1")]),
    ("Q5_0+", ONE, "ffn_down", &[("Q5_1", "0 1")]),
    ("Q4_1+", ONE, "ffn_down", &[]),
    // The output of attention.
    ("Q4_K_M", EXPERTS_8, "attn_output", &[("Q5_K", ALL)]),
    ("Q3_K_L", EXPERTS_8, "attn_output", &[]),
    ("Q4_K_M", ONE, "attn_output", &[]),
    ("Q2_K", ONE, "attn_output", &[("Q3_K", ALL)]),
    ("IQ3_XXS", ONE, "attn_output", &[("IQ3_S", ALL)]),
    ("Q3_K_M", ONE, "attn_output", &[("Q4_K", ALL)]),
    ("IQ3_M", ONE, "attn_output", &[("Q4_K", ALL)]),
    ("Q3_K_L", ONE, "attn_output", &[("Q5_K", ALL)]),
    ("Q3_K_L", FALCON, "attn_output", &[("Q4_K", ALL)]),
    ("Q3_K_M", FALCON, "attn_output", &[]),
    ("Q4_K_M", FALCON_8, "attn_output", &[]),
    // Gate and up projections.
    ("IQ3_XS", ONE, "ffn_gate", &[("IQ3_XXS", MIDDLE)]),
    ("IQ3_XS", EXPERTS_8, "ffn_up_exps", &[("IQ3_XXS", MIDDLE)]),
    ("IQ3_S", ONE, "ffn_up", &[]),
    // Models of eighty layers.
    ("Q3_K_S", ("llama", 8, 0, 80), "attn_v", &[("Q5_K", "0 1 2 79")]),
    ("Q4_K_S", ("qwen2", 1, 0, 80), "attn_v", &[("Q5_K", "0 5 79")]),
    (
        "Q4_K_S",
        ("llama", 1, 0, 80),
        "attn_v",
        &[("Q5_K", "0 1 2 3"), ("Q4_K", "4 79")],
    ),
    (
        "Q4_K_M",
        ("llama", 8, 0, 80),
        "attn_v",
        &[("Q6_K", "0 9 12"), ("Q5_K", "10 11")],
    ),
    ("Q2_K", ("deci", 1, 0, 80), "attn_v", &[("Q5_K", "0 40")]),
    ("Q2_K_S", ("olmo", 4, 0, 80), "attn_v", &[("Q5_K", "0 40")]),
    ("Q2_K_S", ("olmo", 1, 0, 80), "attn_v", &[("Q2_K", "0 40")]),
    // Others.
    ("Q4_K_M", ONE, "ssm_in", &[]),
    ("Q4_K_M", ("glm5-next", 1, 0, 16), "attn_q_a", &[("Q8_0", ALL)]),
    ("Q4_K_M", ONE, "attn_q_a", &[]),
];

fn model((arch, gqa, n_expert, n_layer): Model) -> Facts {
    Facts {
        n_expert,
        ..facts(arch, n_layer, 32, 32 / gqa)
    }
}

#[test]
fn each_rule_for_layers() {
    for (setting, of, tensor, expected) in LAYERS {
        let name = setting.trim_end_matches('+');
        let facts = model(*of);
        let wish = wish(name, name != *setting);
        let base = file_type::by_name(name).unwrap().base;
        let mut policy = Policy::new(&facts, &wish, &[]);
        for layer in 0..facts.n_layer {
            let full = format!("blk.{layer}.{tensor}.weight");
            let found = policy.choose(&full, &shape(&[256, 256])).unwrap();
            let in_list = |list: &str| list.split(' ').any(|l| l == layer.to_string());
            let listed = expected.iter().find(|(_, layers)| in_list(layers));
            // Of long models only the layers in question are listed.
            if listed.is_none() && facts.n_layer > 16 {
                continue;
            }
            let wanted = listed.map_or(base, |(t, _)| t);
            assert_eq!(found.type_name, Some(wanted), "{setting}, {of:?}, {full}");
            let is_base = found.reason == Reason::Base;
            assert_eq!(
                is_base,
                wanted == base,
                "{setting}, {of:?}, {full}: {}",
                found.reason
            );
        }
    }
}

/// File type, architecture, whether the embedding is tied, tensor, shape and its type.
type Head = (
    &'static str,
    &'static str,
    bool,
    &'static str,
    &'static [u64],
    &'static str,
);

const HEADS: &[Head] = &[
    ("Q4_0", "llama", false, "output", &[256, 64], "Q6_K"),
    ("TQ1_0", "llama", false, "output", &[256, 64], "Q6_K"),
    ("Q8_0", "llama", false, "output", &[256, 64], "Q8_0"),
    ("IQ3_XXS", "llama", false, "output", &[256, 64], "Q5_K"),
    ("IQ1_S", "llama", false, "output", &[256, 64], "Q5_K"),
    ("IQ3_XS", "llama", false, "output", &[256, 64], "Q6_K"),
    ("Q4_K_M", "falcon", false, "output", &[256, 64], "Q8_0"),
    ("Q4_K_M", "llama", false, "output", &[96, 64], "Q8_0"),
    ("MXFP4_MOE", "llama", false, "output", &[256, 64], "Q8_0"),
    ("Q4_K_M", "llama", true, "token_embd", &[256, 64], "Q6_K"),
    ("IQ2_XXS", "llama", true, "token_embd", &[256, 64], "Q5_K"),
    ("Q4_K_M", "llama", false, "token_embd", &[256, 64], "Q4_K"),
    ("IQ1_M", "llama", false, "token_embd", &[256, 64], "Q2_K"),
    ("IQ2_M", "llama", false, "token_embd", &[256, 64], "IQ3_S"),
    (
        "IQ3_XXS",
        "llama",
        false,
        "per_layer_token_embd",
        &[256, 64],
        "IQ3_S",
    ),
    ("TQ2_0", "llama", false, "token_embd", &[256, 64], "Q4_K"),
    ("Q2_0", "llama", false, "token_embd", &[256, 64], "Q4_K"),
    ("MXFP4_MOE", "llama", false, "token_embd", &[256, 64], "Q8_0"),
    (
        "MXFP4_MOE",
        "llama",
        false,
        "blk.0.ffn_up_exps",
        &[256, 64, 8],
        "MXFP4",
    ),
    (
        "MXFP4_MOE",
        "llama",
        false,
        "blk.0.attn_k_b",
        &[256, 64, 8],
        "MXFP4",
    ),
    ("MXFP4_MOE", "llama", false, "blk.0.ffn_up", &[256, 64], "Q8_0"),
    (
        "MXFP4_MOE",
        "bailingmoe3",
        false,
        "blk.0.ffn_up_exps",
        &[256, 64, 8],
        "MXFP4",
    ),
    (
        "MXFP4_MOE",
        "bailingmoe3",
        false,
        "blk.0.attn_k_b",
        &[256, 64, 8],
        "Q8_0",
    ),
    // Fallbacks: the type for rows of 96, and of 40, which no type with blocks fits.
    ("IQ1_S", "llama", false, "blk.0.x", &[96, 64], "IQ4_NL"),
    ("IQ1_M", "llama", false, "blk.0.x", &[96, 64], "IQ4_NL"),
    ("IQ2_XXS", "llama", false, "blk.0.x", &[96, 64], "IQ4_NL"),
    ("IQ2_XS", "llama", false, "blk.0.x", &[96, 64], "IQ4_NL"),
    ("IQ2_M", "llama", false, "blk.0.x", &[96, 64], "IQ4_NL"),
    ("IQ3_XXS", "llama", false, "blk.0.x", &[96, 64], "IQ4_NL"),
    ("IQ3_S", "llama", false, "blk.0.x", &[96, 64], "IQ4_NL"),
    ("IQ4_XS", "llama", false, "blk.0.x", &[96, 64], "IQ4_NL"),
    ("Q2_0", "llama", false, "blk.0.x", &[96, 64], "Q4_0"),
    ("Q2_K", "llama", false, "blk.0.x", &[96, 64], "Q4_0"),
    ("Q3_K_S", "llama", false, "blk.0.x", &[96, 64], "Q4_0"),
    ("TQ1_0", "llama", false, "blk.0.x", &[96, 64], "Q4_0"),
    ("TQ2_0", "llama", false, "blk.0.x", &[96, 64], "Q4_0"),
    ("Q4_K_M", "llama", false, "blk.0.x", &[96, 64], "Q5_0"),
    ("Q5_K_M", "llama", false, "blk.0.x", &[96, 64], "Q5_1"),
    ("Q6_K", "llama", false, "blk.0.x", &[96, 64], "Q8_0"),
    ("Q4_K_M", "llama", false, "blk.0.x", &[40, 64], "F16"),
    ("Q8_0", "llama", false, "blk.0.x", &[40, 64], "F16"),
    ("IQ4_NL", "llama", false, "blk.0.x", &[40, 64], "F16"),
    // The usual odd rows.
    ("Q4_K_M", "llama", false, "blk.0.x", &[288, 64], "Q5_0"),
    ("Q4_K_M", "llama", false, "blk.0.x", &[1408, 64], "Q5_0"),
    ("Q4_K_M", "llama", false, "blk.0.x", &[4544, 64], "Q5_0"),
    ("Q4_K_M", "llama", false, "blk.0.x", &[4304, 1152], "F16"),
    ("Q4_K_M", "llama", false, "blk.0.x", &[1152, 4304], "Q5_0"),
];

#[test]
fn heads_stacks_and_fallbacks() {
    for (name, arch, tied, tensor, dims, wanted) in HEADS {
        let facts = Facts {
            tied: *tied,
            ..facts(arch, 16, 32, 32)
        };
        let wish = wish(name, false);
        let shape = Shape::new(dims).unwrap();
        let found = Policy::new(&facts, &wish, &[]).choose(&format!("{tensor}.weight"), &shape);
        assert_eq!(
            found.unwrap().type_name,
            Some(*wanted),
            "{name}, {arch}, {tensor} {shape}"
        );
    }
    let (facts, wish) = (facts("llama", 16, 32, 32), wish("Q1_0", false));
    let none = Policy::new(&facts, &wish, &[]).choose("blk.0.x.weight", &shape(&[96, 64]));
    assert!(none.unwrap_err().contains("no fallback is defined"));
}

/// A row that no case reaches is not tested.
#[test]
fn every_row_decides_in_some_case() {
    let mut missed: Vec<&MixtureRow> = ROWS.iter().collect();
    let mut reach = |setting: &str, facts: &Facts, names: &[String], shape: &Shape| {
        let name = setting.trim_end_matches('+');
        let context = rules::Context {
            facts,
            ftype: name,
            base: file_type::by_name(name).unwrap().base,
            has_imatrix: name != setting,
        };
        let mut counts = rules::Counts::default();
        for name in names {
            let row = context.choose(Category::of(name), name, shape, &mut counts);
            missed.retain(|r| row != Ok(Some(r)));
        }
    };
    for (setting, of, tensor, _) in LAYERS {
        let facts = model(*of);
        let names: Vec<_> = (0..facts.n_layer)
            .map(|layer| format!("blk.{layer}.{tensor}.weight"))
            .collect();
        reach(setting, &facts, &names, &shape(&[256, 256]));
    }
    for (setting, arch, tied, tensor, dims, _) in HEADS {
        let facts = Facts {
            tied: *tied,
            ..facts(arch, 16, 32, 32)
        };
        reach(setting, &facts, &[format!("{tensor}.weight")], &shape(dims));
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
