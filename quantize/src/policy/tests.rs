use std::path::PathBuf;

use gguf::{Array, Metadata, Shape, Value};
use gguf_models::file_type;
use serde_json::Value as Json;

use super::*;

pub(super) fn wish(file_type: &str, has_imatrix: bool) -> Wish {
    Wish {
        file_type: Some(file_type::by_name(file_type).unwrap()),
        has_imatrix,
        pure: false,
        leave_output: false,
        output_type: None,
        token_embd_type: None,
        overrides: Vec::new(),
    }
}

fn metadata(pairs: &Json) -> Metadata {
    let mut m = Metadata::new();
    for pair in pairs.as_array().unwrap() {
        let key = pair[0].as_str().unwrap();
        let value = match pair[1][0].as_str().unwrap() {
            "UINT32" => Value::U32(pair[2].as_u64().unwrap() as u32),
            "STRING" => Value::String(pair[2].as_str().unwrap().to_owned()),
            "ARRAY" if pair[1][1] == "UINT32" || pair[1][1] == "INT32" => {
                let items = pair[2].as_array().unwrap();
                Value::Array(Array::U32(
                    items.iter().map(|v| v.as_u64().unwrap() as u32).collect(),
                ))
            }
            _ => continue,
        };
        m.set(key, value);
    }
    m
}

pub(super) fn shape(dims: &[u64]) -> Shape {
    Shape::new(dims).unwrap()
}

/// Types of all tensors under a setting such as `Q4_K_M+imatrix`, in the order given.
fn types(facts: &Facts, setting: &str, tensors: &[(String, Shape, String)]) -> Result<Vec<String>, String> {
    let (name, imatrix) = setting
        .split_once('+')
        .map_or((setting, false), |(n, _)| (n, true));
    let wish = wish(name, imatrix);
    let mut policy = Policy::new(facts, &wish, &[]);
    let mut order: Vec<_> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| order_key(&tensors[i].0));
    let mut out = vec![String::new(); tensors.len()];
    for i in order {
        let (name, shape, source) = &tensors[i];
        out[i] = policy
            .choose(name, shape)?
            .type_name
            .map_or_else(|| source.clone(), str::to_owned);
    }
    Ok(out)
}

fn tensors_of(list: &Json) -> Vec<(String, Shape, String)> {
    let dims = |t: &Json| {
        t[1].as_array()
            .unwrap()
            .iter()
            .map(|d| d.as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let tensors = list.as_array().unwrap().iter();
    tensors
        .map(|t| {
            (
                t[0].as_str().unwrap().to_owned(),
                shape(&dims(t)),
                t[2].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

fn n_bytes(shape: &Shape, type_name: &str) -> u64 {
    let all = gguf_blocks::registry::all().iter();
    let format = all.copied().find(|f| f.name.eq_ignore_ascii_case(type_name));
    shape.n_bytes(format.unwrap()).unwrap()
}

/// The reference's choice for every tensor, and the size of all, of seven real models under sixty settings.
#[test]
fn mixes_of_real_models() {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/golden/mix"));
    let Ok(list) = std::fs::read_dir(&dir) else {
        eprintln!("notice: {} is absent: nothing compared", dir.display());
        return;
    };
    let mut n_models = 0;
    for path in list.map(|e| e.unwrap().path()) {
        let golden: Json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let tensors = tensors_of(&golden["tensors"]);
        let facts = Facts::new(
            &metadata(&golden["metadata"]),
            tensors.iter().map(|t| t.0.as_str()),
        )
        .unwrap();
        let legend: Vec<_> = golden["legend"]
            .as_array()
            .unwrap()
            .iter()
            .map(|l| l.as_str().unwrap())
            .collect();
        let n_elems: u64 = tensors.iter().map(|t| t.1.n_elems()).sum();
        let results = golden["results"].as_object().unwrap();
        assert_eq!(results.len(), 60);
        for (setting, result) in results {
            let codes = result["codes"].as_str().unwrap();
            let found = types(&facts, setting, &tensors).unwrap();
            assert_eq!(codes.len(), found.len());
            let n_bytes: u64 = tensors.iter().zip(&found).map(|(t, to)| n_bytes(&t.1, to)).sum();
            // The reference prints both with two digits behind the point.
            let (mib, bpw) = (
                n_bytes as f64 / 1024.0 / 1024.0,
                n_bytes as f64 * 8.0 / n_elems as f64,
            );
            for (key, found) in [("size_mib", mib), ("bpw", bpw)] {
                let expected = result[key].as_f64().unwrap();
                assert!(
                    (found - expected).abs() <= 0.005 + 1e-9,
                    "{}, {setting}, {key}: expected {expected}, found {found}",
                    path.display()
                );
            }
            for ((code, found), (name, ..)) in codes.chars().zip(&found).zip(&tensors) {
                let expected = legend[code.to_digit(36).unwrap() as usize];
                assert!(
                    found.eq_ignore_ascii_case(expected),
                    "{}, {setting}, {name}: expected {expected}, found {found}",
                    path.display()
                );
            }
        }
        n_models += 1;
    }
    assert_eq!(n_models, 7);
}

pub(super) fn facts(arch: &str, n_layer: usize, n_head: usize, n_head_kv: usize) -> Facts {
    let arch = arch.to_owned();
    Facts {
        arch,
        n_layer,
        n_expert: 0,
        n_head,
        n_head_kv,
        n_v_like: n_layer,
        tied: false,
    }
}

#[test]
fn kept_tensors() {
    let quantized = |name: &str, dims: &[u64]| is_quantized("llama", name, &shape(dims));
    assert!(quantized("blk.0.attn_k_b.weight", &[128, 512, 8]));
    assert!(quantized("blk.0.ffn_gate_inp_shexp.weight", &[256, 2]));
    assert!(!quantized("blk.0.ffn_gate_inp_shexp.weight", &[256, 1]));
    assert!(!quantized("blk.0.ffn_gate_inp.weight", &[256, 8]));
    assert!(!quantized("blk.0.attn_norm.weight", &[256, 8]));
    assert!(!quantized("blk.0.attn_q.bias", &[256, 8]));
    assert!(!quantized("v.patch_embd.weight", &[14, 14, 3, 1152]));
    assert!(!quantized("position_embd.weight", &[256, 512]));
}

#[test]
fn seventy_billion_values_get_more() {
    let facts = facts("llama", 80, 64, 8);
    let wish = wish("Q3_K_S", false);
    let chosen = Policy::new(&facts, &wish, &[])
        .choose("blk.0.attn_v.weight", &shape(&[8192, 1024]))
        .unwrap();
    assert_eq!(chosen.type_name, Some("Q5_K"));
    assert_eq!(
        chosen.reason.to_string(),
        "mixture: attn_v|attn_qkv|attn_kv_b, 80 layers"
    );
}

#[test]
fn falcon_has_its_own_mixture() {
    let facts = facts("falcon", 32, 71, 1);
    let wish = wish("Q4_K_M", false);
    let mut policy = Policy::new(&facts, &wish, &[]);
    let down = |policy: &mut Policy<'_>, i: usize| {
        policy
            .choose(&format!("blk.{i}.ffn_down.weight"), &shape(&[18176, 4544]))
            .unwrap()
            .type_name
            .unwrap()
    };
    let found: Vec<_> = (0..8).map(|i| down(&mut policy, i)).collect();
    assert_eq!(
        found,
        ["Q6_K", "Q6_K", "Q5_K", "Q5_K", "Q4_K", "Q4_K", "Q5_K", "Q4_K"]
    );
    let output = policy.choose("output.weight", &shape(&[4544, 65024])).unwrap();
    assert_eq!(output.type_name, Some("Q8_0"));
}

#[test]
fn experts_outside_layers_are_refused() {
    let facts = Facts {
        n_expert: 8,
        ..facts("llama", 2, 8, 8)
    };
    let wish = wish("Q4_K_M", false);
    let err = Policy::new(&facts, &wish, &[])
        .choose("blk.7.ffn_down.weight", &shape(&[256, 256]))
        .unwrap_err();
    assert_eq!(
        err,
        "tensor `blk.7.ffn_down.weight`: expected a layer below 2 (`block_count`), found 7"
    );
}

fn rule(pattern: &str, type_name: &'static str) -> Override {
    Override {
        text: format!("{pattern}={type_name}"),
        place: "here".to_owned(),
        pattern: Pattern::compile(pattern).unwrap(),
        type_name,
    }
}

#[test]
fn the_users_types_win() {
    let facts = facts("llama", 32, 32, 8);
    let down = |wish: &Wish| {
        let (name, shape) = ("blk.0.ffn_down.weight", shape(&[4096, 4096]));
        let mut policy = Policy::new(&facts, wish, &[(name, &shape)]);
        let choice = policy.choose(name, &shape).unwrap();
        (choice, policy.matches().to_vec())
    };
    let rules = vec![
        rule("attn", "Q8_0"),
        rule("ffn_down", "Q5_K"),
        rule("ffn", "Q2_K"),
    ];
    for (file_type, pure) in [
        ("Q4_K_M", false),
        ("Q4_K_M", true),
        ("F16", false),
        ("Q5_K_S", false),
    ] {
        let wish = Wish {
            overrides: rules.clone(),
            pure,
            ..wish(file_type, false)
        };
        let expected = Choice {
            type_name: Some("Q5_K"),
            reason: Reason::Override(1),
        };
        assert_eq!(down(&wish), (expected, vec![false, true, true]), "{file_type}");
    }
    let left = Wish {
        leave_output: true,
        output_type: Some("Q8_0"),
        ..wish("Q4_K_M", false)
    };
    let kept = Policy::new(&facts, &left, &[])
        .choose("output.weight", &shape(&[4096, 32000]))
        .unwrap();
    assert_eq!(
        kept,
        Choice {
            type_name: None,
            reason: Reason::Kept
        }
    );
}

#[test]
fn an_asked_type_that_does_not_fit_is_refused() {
    let facts = facts("llama", 32, 32, 8);
    let wish = Wish {
        overrides: vec![rule("ffn_down", "Q4_K")],
        ..wish("Q8_0", false)
    };
    let (name, shape) = ("blk.0.ffn_down.weight", shape(&[4544, 64]));
    let err = Policy::new(&facts, &wish, &[(name, &shape)])
        .choose(name, &shape)
        .unwrap_err();
    assert!(
        err.contains("4544 elements are not whole blocks of `Q4_K`; types that fit: "),
        "{err}"
    );
    assert!(err.contains("Q8_0") && !err.contains("Q6_K"), "{err}");
}

#[test]
fn tied_embeddings_follow_the_output() {
    let facts = Facts {
        tied: true,
        ..facts("llama", 32, 32, 8)
    };
    let embd = |wish: &Wish| {
        Policy::new(&facts, wish, &[])
            .choose("token_embd.weight", &shape(&[4096, 32000]))
            .unwrap()
            .type_name
    };
    assert_eq!(embd(&wish("Q4_K_M", false)), Some("Q6_K"));
    assert_eq!(
        embd(&Wish {
            output_type: Some("Q8_0"),
            ..wish("F16", false)
        }),
        Some("Q8_0")
    );
    let both = Wish {
        output_type: Some("Q8_0"),
        token_embd_type: Some("Q5_K"),
        ..wish("Q4_K_M", false)
    };
    assert_eq!(embd(&both), Some("Q5_K"));
}
